"""Causes in how several ranks of one training go together."""

from __future__ import annotations

from flatout.measure.measured_run import MeasuredRun
from flatout.measure.thresholds import DOMINANT_SHARE, NOISE_SHARE
from flatout.results import Cause, Evidence, NotMeasured
from flatout.units import duration, percent


def rank_straggler(view: MeasuredRun) -> Cause | NotMeasured | None:
    """One rank comes last to the exchange of gradients in most steps, and all others wait for it."""
    ranks = view.ranks
    if ranks is None:
        return None
    # By chance the last one of n would be the same in one step of n.
    if ranks.late_share < max(DOMINANT_SHARE, 1.5 / ranks.count) or ranks.waited_share < NOISE_SHARE:
        return None
    return Cause(
        id="rank_straggler",
        title=f"rank {ranks.straggler} keeps the others waiting: it {ranks.part} longer",
        share=ranks.waited_share,
        confidence=round(view.confidence(0.9) * min(1.0, ranks.late_share + 0.1), 2),
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
