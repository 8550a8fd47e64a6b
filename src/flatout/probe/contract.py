"""The contract between flatout and its probe, apart from the events: environment variables and names.

Through the variables, flatout tells the probe in every Python process of a command what to do.
``on_pythonpath/sitecustomize.py`` imports nothing from here and so repeats the names that it reads.
"""

# --- environment variables ---
VARIABLE_PREFIX = "FLATOUT_"  # of all variables that flatout sets
RUN_VARIABLE = "FLATOUT_RUN"  # the run folder to record into; nothing is recorded without it
SETTINGS_VARIABLE = "FLATOUT_SETTINGS"  # a JSON object: name of an injected setting -> value
APPLIED_VARIABLE = "FLATOUT_APPLIED"  # id of the process that ``flatout apply`` started
LOSSES_VARIABLE = "FLATOUT_LOSSES"  # "1": note the loss of each backward pass
REDIRECT_VARIABLE = "FLATOUT_REDIRECT"  # a folder that takes the files which Python code writes
SEED_VARIABLE = "FLATOUT_SEED"  # a number from which generators begin that the script leaves unseeded
CACHE_RUN_VARIABLE = "FLATOUT_CACHE_RUN"  # a number that names one training to the read cache, in all its processes
SAMPLES_VARIABLE = "FLATOUT_SAMPLES"  # PROCESS:DESCRIPTOR:TOKEN: where the processes of a training share samples
CEILING_VARIABLE = "FLATOUT_CEILING"  # CEILING_DEVICE or CEILING_SUPPLY
CEILING_SECONDS_VARIABLE = "FLATOUT_CEILING_SECONDS"  # how long the loader runs alone, twice; 10 if not set
MEMORY_VARIABLE = "FLATOUT_MEMORY"  # "1": track the memory of the second step, then end
DEVICE_HOOKS_VARIABLE = "FLATOUT_DEVICE_HOOKS"  # "1": time copies and reads even without a device
DEBUG_VARIABLE = "FLATOUT_DEBUG"  # anything: print the probe's own faults on standard error

# --- regions of the kernel trace ---
BACKWARD_ENDED = "flatout.backward_ended"  # in a training that calls no optimizer

# --- rates of the device ---
TF32 = "tf32"  # products of float32 in TF32, beside torch's names of types

LIVE_PLAN = "live.json"  # in the run folder: the blocks of a live trial, see ``live_trial``

CEILING_DEVICE = "device"  # replay batches: how fast the model and the loop are
CEILING_SUPPLY = "supply"  # run the loader alone: how fast batches are made

# --- metrics: those of the user's own loggers never begin with the prefix ---
METRIC_PREFIX = "flatout/"
LOSS_METRIC = METRIC_PREFIX + "loss"
SUPPLY_COLD_METRIC = METRIC_PREFIX + "supply_cold"  # samples/s of batches that were not read before
SUPPLY_WARM_METRIC = METRIC_PREFIX + "supply_warm"  # samples/s of the same batches again
MEMORY_METRICS = METRIC_PREFIX + "memory/"  # followed by a kind of memory: bytes
MEMORY_SAMPLES_METRIC = MEMORY_METRICS + "samples"  # of the tracked step's batch
MEMORY_FORWARD_METRIC = MEMORY_METRICS + "forward pass"  # bytes at the peak until the model returned
MEMORY_STEP_METRIC = MEMORY_METRICS + "whole step"  # bytes at the peak, the optimizer's step included

# --- changes in the steps after the window; settings for debugging have the names of ``debugging.SETTINGS`` ---
HOOKS = "hooks"  # nothing is changed: the user's hooks are timed
THREADS = "threads="  # followed by the number of intra-op threads
USED_GRADIENTS = "used_gradients"  # backward passes compute only gradients that an optimizer uses
KEPT_GRADIENTS = "kept_gradients"  # backward passes leave out gradients that are set to zero before they are used

# --- the last steps, on kept batches: what their blocks do ---
REPLAYED = "replayed"  # the batches as they came
SINGLE = "single"  # the same, with the exceptions of the training watched
DOUBLED = "doubled"  # each batch joined to itself, watched
TRIMMED = "trimmed"  # each batch without the positions that only hold padding, watched
LOADER = "loader"  # no steps: the loader runs alone
