"""Causes in the synchronisation of several ranks of one training."""

from __future__ import annotations

from flatout.diagnose.cause import Found, Lacks, cause
from flatout.measure.thresholds import DOMINANT_SHARE, NOISE_SHARE
from flatout.predict.context import Context
from flatout.results import Evidence
from flatout.units import duration, percent


# Waiting for a late rank costs the same for a larger batch, and computes nothing: it looks like these two.
@cause("training", hides=("small_batch", "overhead_bound"), hides_from=0.2)
def rank_straggler(context: Context) -> Found | Lacks | None:
    """One rank comes last to the exchange of gradients in most steps, and all others wait for it."""
    run = context.run
    ranks = run.ranks
    if ranks is None:
        return None
    # By chance the last one of n would be the same in one step of n.
    if ranks.late_share < max(DOMINANT_SHARE, 1.5 / ranks.count) or ranks.waited_share < NOISE_SHARE:
        return None
    return Found(
        title=f"rank {ranks.straggler} keeps the others waiting: it {ranks.part} longer",
        share=ranks.waited_share,
        confidence=0.9 * min(1.0, ranks.late_share + 0.1),
        evidence=(
            Evidence(
                f"rank {ranks.straggler} of {ranks.count} comes last in {percent(ranks.late_share)} of {ranks.steps} "
                f"steps; the others wait for it {percent(ranks.waited_share)} of their time",
                {
                    "rank": ranks.straggler,
                    "ranks": ranks.count,
                    "late_share": ranks.late_share,
                    "waited_share": ranks.waited_share,
                },
            ),
            Evidence(
                f"it {ranks.part} {duration(ranks.part_s)} a step, the median rank {duration(ranks.usual_s)}",
                {"seconds": ranks.part_s, "usual_seconds": ranks.usual_s},
            ),
        ),
    )
