"""Why a fix ends although there is time left."""

from __future__ import annotations

from collections.abc import Sequence

from flatout.trials.result import UNCONFIRMED, UNMEASURED, Trial
from flatout.trials.sequential import MOST_PAIRS, gains, hopeless
from flatout.units import duration


def nothing_left(tried: Sequence[Trial], budget_s: float) -> str:
    """One sentence on why no remedy is tried any more.

    Args:
        tried: all trials.
        budget_s: of the fix.
    """
    unconfirmed = [trial for trial in tried if trial.outcome == UNCONFIRMED and not trial.live]
    undecided = [trial.ratio for trial in unconfirmed if trial.ratio is None or not gains(trial.ratio)]
    if any(ratio is None or (ratio.pairs < MOST_PAIRS and not hopeless(ratio)) for ratio in undecided):
        return f"The budget of {duration(budget_s)} had no room for another pair of runs."
    if any(ratio is not None and ratio.pairs < MOST_PAIRS for ratio in undecided):
        return "Runs differ by so much that more pairs would hardly decide: try a quieter machine, or --seconds."
    if undecided:
        return f"A gain was seen that {MOST_PAIRS} pairs of runs did not prove."
    if any(trial.outcome == UNMEASURED for trial in tried):
        return "A run without a remedy failed, so its trial says nothing about the remedy."
    other = "other " if tried else ""
    return f"There is no {other}remedy that flatout can try and whose predicted gain a trial could tell from noise."
