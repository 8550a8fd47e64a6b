"""The cost of each part of the transform pipeline, from the parts of single samples that were timed."""

from __future__ import annotations

import numpy as np

from flatout.measure.loader_processes import LoaderProcesses
from flatout.measure.loader_stats import TransformCost
from flatout.probe import events as kinds
from flatout.record import Events, Names
from flatout.record.packed_fields import transform_pixels, transform_place


def transform_costs(side: LoaderProcesses) -> tuple[TransformCost, ...]:
    """Mean cost of each part inside the window, in pipeline order."""
    totals: dict[tuple[int, str], list[float]] = {}
    begin, finish = side.training.window_begin_ns, side.training.window_end_ns
    if side.teams:
        for process in side.processes:
            parts = process.of_kinds(kinds.TRANSFORM)
            _add(parts[(parts["start"] >= begin) & (parts["start"] < finish)], process.names, totals)
    else:  # one process trains and validates: only what lies in the training loader's own waits
        _add(side.spans(kinds.TRANSFORM), side.training.process.names, totals)
    # Parts are timed in just the samples that are: two views of each picture are two calls a sample.
    samples = len(side.spans(kinds.ITEM))
    return tuple(
        TransformCost(
            name,
            seconds / count,
            max(before / count, 0.0),
            after / count,
            count / samples if samples else 1.0,
            repeats=before < 0,
        )
        for (_, name), (count, seconds, before, after) in sorted(totals.items())
    )


def _add(parts: Events, names: Names, totals: dict[tuple[int, str], list[float]]) -> None:
    place, pixels_out = transform_place(parts), transform_pixels(parts)
    for key in np.unique(np.stack([place, parts["arg"]], axis=1), axis=0).tolist():
        mine = (place == key[0]) & (parts["arg"] == key[1])
        total = totals.setdefault((int(key[0]), names.text(int(key[1]), "unknown")), [0.0, 0.0, 0.0, 0.0])
        total[0] += int(mine.sum())
        total[1] += float(parts["duration"][mine].sum()) / 1e9
        total[2] += float(parts["a"][mine].sum())
        total[3] += float(pixels_out[mine].sum())
