"""Judge all causes for a run and put them in order: what to remove first comes first."""

from __future__ import annotations

from dataclasses import replace

from flatout.diagnose.causes import BY_ID, CAUSES, HEALTHY
from flatout.diagnose.causes.device import FEW_SAMPLES
from flatout.diagnose.causes.host import seen_once
from flatout.diagnose.evidence import after_the_window
from flatout.diagnose.reliability import BROAD
from flatout.measure.thresholds import LEADING_SHARE, MATERIAL_SHARE
from flatout.predict.context import Context
from flatout.predict.pipeline import Change
from flatout.results import Cause, Evidence, NotMeasured
from flatout.units import percent

_OF_DATA = ("waiting", "data")
_ROUNDING = 0.005  # shares are shown in whole percent
_NEARLY = 0.9  # of a broad cause's share: one that names a mechanism comes first
# Of the share of all overhead: its remedies are taken to remove about half of it. In five of seven programs in which it
# wrongly came before the fault, that had half as large a share or more.
_OVERHEAD = 0.5
# Said of the same time as well: a model that is called by a method, and not as a module, is the user's own code.
_BY_LINE = ("main_process_work", "own_input")
_SAME_LINE = 0.3  # of such a cause's share, that one which names the same line has at least
_ONCE = 0.5  # of the share of what happened once, and may be rarer than the window shows
_CONTRADICTED = 0.5  # of a share: if no more was to be had with the batches there, the reasoning was wrong somewhere


def judge(context: Context) -> tuple[tuple[Cause, ...], tuple[NotMeasured, ...]]:
    """Causes in rank order, and those that could not be judged."""
    found: list[Cause] = []
    missing: list[NotMeasured] = []
    for cause in CAUSES:
        answer = cause(context)
        if isinstance(answer, Cause):
            found.append(_within_ceiling(context, _within_account(context, answer)))
        elif answer is not None:
            missing.append(answer)
    return _with_what_was_measured(context, rank(found)), tuple(missing)


def _within_account(context: Context, cause: Cause) -> Cause:
    """Limit a share to the wait for batches, plus the training thread's own wait for cores that fetching takes."""
    wait = context.run.ledger.share("batch_wait")
    if BY_ID[cause.id].group != "waiting" or cause.share <= wait:
        return cause
    model = context.fitted
    queued = model.now.core_wait_share if model is not None else 0.0
    share = min(cause.share, wait + queued)
    if share - wait < _ROUNDING:
        return replace(cause, share=share)
    text = (
        f"also frees the cores that the training computes on: it waits {percent(wait)} of the time for batches, "
        f"and {percent(queued)} for a core"
    )
    why = Evidence(text, {"batch_wait": wait, "core_wait": queued})
    return replace(cause, share=share, evidence=(why, *cause.evidence))


def _within_ceiling(context: Context, cause: Cause) -> Cause:
    """Limit a share to what steps gave back whose batches were already there."""
    model = context.fitted
    if BY_ID[cause.id].group != "waiting" or model is None or model.fastest_step_s is None:
        return cause
    most = 1.0 - 1.0 / model.most(Change())
    if cause.share <= most:
        return cause
    confidence = cause.confidence * (0.5 if most < _CONTRADICTED * cause.share else 1.0)
    return replace(cause, share=most, confidence=round(confidence, 2))


def _with_what_was_measured(context: Context, ranked: tuple[Cause, ...]) -> tuple[Cause, ...]:
    """Add what steps after the window show of the input: to the first cause of the wait, and to the healthy answer."""
    measured = after_the_window(context)
    waiting = next((cause.id for cause in ranked if BY_ID[cause.id].group == "waiting"), None)
    return tuple(
        replace(cause, evidence=(*cause.evidence, *measured)) if cause.id in (waiting, HEALTHY) else cause
        for cause in ranked
    )


def rank(causes: list[Cause]) -> tuple[Cause, ...]:
    """Largest share first; hidden causes after all others, since removing them alone yields less than it seems to.

    Of nearly equal ones, what another fault often brings about comes last. Overhead counts for what can be taken away.
    What happened once counts for half: its share of a longer run may be far smaller.

    The healthy answer leads if no fault is material, and otherwise comes last. It is dropped if a fault of the data is
    material.
    """
    by_id = {cause.id: cause for cause in causes}
    faults = [replace(cause, hidden_by=_hider(cause, by_id)) for cause in causes if cause.id != HEALTHY]
    ranked = sorted(faults, key=lambda cause: (cause.hidden_by is not None, -_weight(cause, by_id)))
    leading = [cause for cause in faults if cause.share >= LEADING_SHARE]
    if HEALTHY in by_id and not any(BY_ID[cause.id].group in _OF_DATA for cause in leading):
        # What a fault inside the step takes is no computation of the model's own.
        left = 1.0 - max((cause.share for cause in faults if cause.share >= MATERIAL_SHARE), default=0.0)
        healthy = replace(by_id[HEALTHY], share=min(by_id[HEALTHY].share, left))
        ranked.insert(len(ranked) if leading else 0, healthy)
    return tuple(ranked)


def _weight(cause: Cause, by_id: dict[str, Cause]) -> float:
    broad = cause.id in BROAD and not _few_samples(cause)
    overhead = cause.id == "overhead_bound" or (cause.id == "small_batch" and broad and "overhead_bound" in by_id)
    part = _OVERHEAD if overhead else 1.0
    return cause.share * part * (_NEARLY if broad else _ONCE if seen_once(cause) else 1.0)


def _few_samples(cause: Cause) -> bool:
    """A batch so small that it alone explains the many small operators."""
    sizes = [evidence.values.get("samples") for evidence in cause.evidence]
    return cause.id == "small_batch" and any(isinstance(size, (int, float)) and size <= FEW_SAMPLES for size in sizes)


def _hider(cause: Cause, by_id: dict[str, Cause]) -> str | None:
    """The largest cause to remove before this one; one that is much smaller does not count."""
    same = _of_the_same_line(cause, by_id)
    if same is not None:
        return same
    hiders = (found for found in by_id.values() if cause.id in BY_ID[found.id].hides)
    material = [hider for hider in hiders if hider.share >= _least_hiding(hider, cause, by_id)]
    if not material:
        return None
    hidden = {id for hider in material for id in BY_ID[hider.id].hides}
    # Ties go to the cause that no other one hides.
    return max(material, key=lambda hider: (hider.share, hider.id not in hidden)).id


def _of_the_same_line(cause: Cause, by_id: dict[str, Cause]) -> str | None:
    """The cause that says what is wrong in the line that takes most of the user's own code."""
    if cause.id not in _BY_LINE:
        return None
    line = next(iter(_lines(cause)), None)
    named = [one for one in by_id.values() if one.id not in _BY_LINE and line in _lines(one)]
    named = [one for one in named if one.share >= max(MATERIAL_SHARE, _SAME_LINE * cause.share)]
    return max(named, key=lambda one: one.share).id if named and line is not None else None


def _lines(cause: Cause) -> list[tuple[object, object]]:
    places = [(one.values.get("file"), one.values.get("line")) for one in cause.evidence]
    return [place for place in places if None not in place]


def _least_hiding(hider: Cause, hidden: Cause, by_id: dict[str, Cause]) -> float:
    """The share from which one cause hides another."""
    spec = BY_ID[hider.id]
    together = sum(by_id[id].share for id in spec.hides if id in by_id)
    return max(MATERIAL_SHARE, spec.hides_from * hidden.share, spec.hides_all_from * together)
