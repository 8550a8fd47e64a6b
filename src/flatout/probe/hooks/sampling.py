"""The sampler of a DataLoader: the time that it takes to choose the indices of a batch, in the training process."""

from .. import events
from ..recorder import REC, now, report_fault
from ..wrap import is_compiling

LEAST_NS = 20_000  # shorter calls are no part of a step that matters, and cost no event


def begins(iterator):
    """Before the next indices are taken from the sampler."""
    return None if is_compiling() or not REC.on else (now(), iterator)


def ended(call, indices):
    """After; nothing is recorded for the end of a pass."""
    end = now()
    start, iterator = call
    if end - start < LEAST_NS or indices is call:
        return
    try:
        number = getattr(iterator, "_send_idx", None)  # of an iterator with workers
        REC.emit(events.SAMPLING, start, end, 0, iterator._num_yielded if number is None else number)
    except Exception:
        report_fault("sampler")
