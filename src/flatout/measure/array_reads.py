"""The arrays that libraries read out of files for a sample, and what of them the sample keeps."""

from __future__ import annotations

import math
import re
from collections import Counter

import numpy as np

from flatout.measure.loader_processes import LoaderProcesses
from flatout.measure.loader_stats import ArrayReads, Delivery
from flatout.measure.thresholds import DOMINANT_SHARE
from flatout.measure.timeline import Flags
from flatout.probe import events as kinds
from flatout.record import Events, ends
from flatout.record.packed_fields import array_bytes, array_sides

_VOLUME_SIDES = 3
_LAYOUT = re.compile(r"(\w+) \[([\d, ]*)\]")
_RECORDED_TENSORS = 8  # of a batch: those beyond are not described


def array_reads(side: LoaderProcesses, samples: int) -> ArrayReads | None:
    """Arrays read inside the window, for each of its samples; None: no large one was seen.

    Args:
        side: the training's loader.
        samples: fetched inside the window.
    """
    if not samples:
        return None
    wanted = (kinds.ARRAY_READ,)
    begin, finish = side.training.window_begin_ns, side.training.window_end_ns
    if side.teams:
        found = [(process.of_kinds(*wanted), process.names) for process in side.processes]
        found = [(reads[(ends(reads) > begin) & (ends(reads) <= finish)], names) for reads, names in found]
    else:  # one process trains and validates: only what lies in the training loader's own waits
        found = [(side.spans(*wanted), side.training.process.names)]
    values = size = seconds = calls = in_volumes = 0.0
    by_package: Counter[str] = Counter()
    for reads, names in found:
        reads = reads[_outermost(reads)]
        bytes_ = array_bytes(reads)
        values += float(reads["a"].sum())
        size += float(bytes_.sum())
        seconds += float(reads["duration"].sum()) / 1e9
        calls += len(reads)
        in_volumes += float(bytes_[array_sides(reads) >= _VOLUME_SIDES].sum())
        for word in np.unique(reads["arg"]).tolist():
            by_package[names.text(int(word), "unknown")] += int(bytes_[reads["arg"] == word].sum())
    if not calls:
        return None
    package = max(by_package, key=by_package.__getitem__)
    whole = in_volumes >= DOMINANT_SHARE * size
    return ArrayReads(package, values / samples, size / samples, seconds / samples, calls / samples, whole)


def _outermost(reads: Events) -> Flags:
    """Reads that lie in no other one: a library's pages within its file, in whatever thread."""
    order = np.lexsort((-reads["duration"], reads["start"]))
    ended = ends(reads)[order]
    until = np.concatenate([[-1], np.maximum.accumulate(ended)[:-1]]) if len(ended) else ended
    outermost = np.zeros(len(reads), bool)
    outermost[order] = ended > until
    return outermost


def sample_values(delivery: Delivery) -> float | None:
    """Values that a sample has in its batch, of all its tensors; None: not known."""
    shapes = _shapes(delivery)
    if not shapes or len(delivery.layout) >= _RECORDED_TENSORS or not delivery.samples:
        return None
    return sum(map(math.prod, shapes)) * delivery.batches / delivery.samples


def patch_shape(delivery: Delivery) -> tuple[int, ...] | None:
    """Depth, height and width of the patches in a batch; None: its first tensor is none of volumes."""
    for shape in _shapes(delivery)[:1]:
        sides = shape[-_VOLUME_SIDES:]
        if len(shape) > _VOLUME_SIDES and min(sides) >= kinds.LEAST_SIDE:
            return sides
    return None


def largest_tensor(delivery: Delivery) -> tuple[str, tuple[int, ...]] | None:
    """Type and shape of the tensor of a batch with the most values; None: the batch holds none that was described."""
    return max(_tensors(delivery), key=lambda tensor: math.prod(tensor[1]), default=None)


def _shapes(delivery: Delivery) -> list[tuple[int, ...]]:
    return [shape for _, shape in _tensors(delivery)]


def _tensors(delivery: Delivery) -> list[tuple[str, tuple[int, ...]]]:
    found = [_LAYOUT.fullmatch(text) for text in delivery.layout]
    return [(each[1], tuple(int(side) for side in each[2].split(",") if side.strip())) for each in found if each]
