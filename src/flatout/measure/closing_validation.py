"""The validation after the very last step: part of the last epoch, as each validation before it is of its own."""

from __future__ import annotations

import numpy as np

from flatout.measure.forward_calls import evaluation_calls
from flatout.probe import events as kinds
from flatout.record import Events, ends, of_kinds

_OF_LOADER = (kinds.ITER_START, kinds.BATCH_WAIT, kinds.ITER_END)


def closing_validation_end(events: Events, other_loaders: tuple[int, ...], begin_ns: int, last_ns: int) -> int:
    """The end of the validation that follows the last step, ns; ``last_ns`` if none does.

    Only what validated between the steps too counts, and only once: a test on other data, or a second pass over the
    same, belongs to no epoch.

    Args:
        events: of the training thread, in order of start.
        other_loaders: name ids of the loaders that do not feed the training.
        begin_ns: end of the first step.
        last_ns: end of the last step.
    """
    found = last_ns
    spans = of_kinds(events, kinds.VALIDATION)
    for arg in np.unique(spans["arg"]):
        found = max(found, _end_of_first(spans[spans["arg"] == arg], begin_ns, last_ns))
    for loader in other_loaders:
        found = max(found, _end_of_pass(events, loader, begin_ns, last_ns))
    return found


def _end_of_first(spans: Events, begin_ns: int, last_ns: int) -> int:
    """The end of the first span after the last step, if there was one between the steps."""
    if not _between(spans, begin_ns, last_ns):
        return last_ns
    after = spans[spans["start"] >= last_ns][:1]
    return int(ends(after).max()) if len(after) else last_ns


def _end_of_pass(events: Events, loader: int, begin_ns: int, last_ns: int) -> int:
    """The end of the first pass over a loader after the last step, if there was one between the steps."""
    seen = of_kinds(events[events["arg"] == loader], *_OF_LOADER)
    if not _between(seen[seen["kind"] == kinds.BATCH_WAIT], begin_ns, last_ns):
        return last_ns
    after = seen[seen["start"] >= last_ns]
    begun = after["start"][after["kind"] == kinds.ITER_START]
    if len(begun) > 1:
        after = after[after["start"] < begun[1]]
    if not np.any(after["kind"] == kinds.BATCH_WAIT):
        return last_ns
    # Where no end of the pass was recorded, the last batch is worked on still.
    end = int(ends(after).max())
    work = of_kinds(events, kinds.FORWARD)
    work = work[work["start"] >= end][:1]
    evaluates = bool(np.any(evaluation_calls(work)))
    return int(ends(work).max()) if evaluates and after["kind"][-1] != kinds.ITER_END else end


def _between(seen: Events, begin_ns: int, last_ns: int) -> bool:
    return bool(np.any((seen["start"] > begin_ns) & (seen["start"] < last_ns)))
