"""Decides from a trial's pairs of runs whether to keep the remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flatout.compare.ratio import Ratio
from flatout.measure.thresholds import NOISE_SHARE
from flatout.results import Remedy
from flatout.trials.outcome import REFUSED
from flatout.trials.pairs import Pairs
from flatout.trials.result import DROPPED, KEPT, UNCONFIRMED, UNMEASURED, Proof, Trial, merged
from flatout.trials.sequential import clears, gains
from flatout.units import factor

_LOOSENESS = ("identical", "numerics", "data", "optimisation")


def judge(remedy: Remedy, settings: Mapping[str, Any] | None, found: Pairs, history: str, wall_s: float) -> Trial:
    """Keep it only if it gains beyond noise and trains the same.

    Args:
        remedy: that was tried.
        settings: of its last run; None: no value of it fits.
        found: its pairs.
        history: of larger values that did not fit; sentences.
        wall_s: of the whole trial.
    """
    ratio, loss = None, ""
    if settings is None:
        outcome, why = found.failed.outcome if found.failed else DROPPED, history.strip()
    elif found.failed is not None and found.failed_without:
        outcome, why = UNMEASURED, f"{history}the run without it failed: {found.failed.detail}"
    elif found.failed is not None:
        verb = "was not changed" if found.failed.outcome == REFUSED else "ended"
        outcome, why = found.failed.outcome, f"{history}with it, the run {verb}: {found.failed.detail}"
    else:
        ratio = found.ratio()
        assert ratio is not None, "without a failure there is a pair"
        losses = found.check(remedy.semantic_class, settings)
        loss = losses.text
        if ruled_out(ratio):
            seen = f"that clears {NOISE_SHARE:.0%}" if ratio.high < 1.0 + NOISE_SHARE else "was seen"
            outcome, why = DROPPED, f"{history}no gain {seen}: {_in_pairs(ratio)}"
        elif not losses.checked:
            outcome, why = UNCONFIRMED, f"{history}{_in_pairs(ratio)}, but not shown to train the same: {loss}"
        elif not losses.passed:
            outcome, why = DROPPED, f"{history}faster, but the losses: {losses.text}"
        elif gains(ratio):
            outcome, why = KEPT, f"{history}{_in_pairs(ratio)}"
        elif clears(ratio):
            # How much two runs of one training differ on this machine, one pair does not show.
            outcome, why = UNCONFIRMED, f"{history}{_in_pairs(ratio)}, not proved"
        else:
            outcome, why = UNCONFIRMED, f"{history}not decided: {_in_pairs(ratio)}"
    used = remedy.settings if settings is None else settings
    return Trial(
        remedy=remedy.id,
        title=titled(remedy, used),
        semantic_class=remedy.semantic_class,
        settings=dict(used),
        predicted=remedy.gain,
        outcome=outcome,
        why=why,
        ratio=ratio,
        loss=loss,
        wall_s=wall_s,
        how=remedy.how,
        stalled=found.stalled,
    )


def prove(found: Pairs, unit: str, kept: Sequence[Trial]) -> Proof | None:
    """The original training against all kept remedies; None without a complete pair.

    Args:
        found: pairs of the two.
        unit: of the rates.
        kept: the loosest class among them decides which losses may differ.
    """
    ratio = found.ratio()
    if ratio is None:
        return None
    losses = found.check(max((trial.semantic_class for trial in kept), key=_LOOSENESS.index), merged(kept))
    before, after = found.rates()
    return Proof(before, after, ratio, unit, losses.text, losses.passed)


def titled(remedy: Remedy, settings: Mapping[str, Any]) -> str:
    """The remedy's title, with the values if they differ from those proposed."""
    if dict(settings) == dict(remedy.settings):
        return remedy.title
    return f"{remedy.title}, at {', '.join(f'{name}={value}' for name, value in settings.items())}"


def ruled_out(ratio: Ratio) -> bool:
    """True if no gain was seen; one that the differences between runs, or other processes, hide is undecided."""
    return ratio.factor / min(ratio.uneven, 1.0) <= 1.0 + NOISE_SHARE


def measured(ratio: Ratio) -> str:
    """The ratio with its interval."""
    return f"{factor(ratio.factor)} ({factor(ratio.low)} to {factor(ratio.high)})"


def _in_pairs(ratio: Ratio) -> str:
    disturbed = f" ({ratio.disturbed})" * bool(ratio.disturbed)
    return f"{measured(ratio)} in {'one pair' if ratio.pairs == 1 else f'{ratio.pairs} pairs'}{disturbed}"
