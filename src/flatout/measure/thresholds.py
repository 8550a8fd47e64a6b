"""The limits that several rules share, each with the physical reason for its value."""

# Two runs of the same training on a quiet machine differ by 1-3%. A share below this could not be proved by a
# trial, so it is never called a fault.
NOISE_SHARE = 0.03

# Removing a share of 10% gives at most 1.11x: a cause smaller than this cannot hide another one.
MATERIAL_SHARE = 0.10

# Removing a share of 14% gives at most 1.16x. A run in which nothing larger can be removed is called healthy: of the
# first causes on record, all but one that were right had more, and a quarter of those that were false alarms had less.
LEADING_SHARE = 0.14

# More than half: whatever is done to the rest gains less than a factor of two.
DOMINANT_SHARE = 0.5

# Run-queue time as a part of (on-CPU + run-queue) time of a fetch. Under fair scheduling a part r means
# 1 / (1 - r) runnable threads for each core: from 0.2 on there are 1.25, so the cores are always busy.
SATURATED_RUNQUEUE = 0.2

# Fewer batches than this make means and quantiles unstable: confidence is lowered and intervals widen.
THIN_BATCHES = 20
LEAST_STEPS = 5  # fewer do not determine the speed of a run
