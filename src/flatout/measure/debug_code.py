"""Code made for debugging, as stack samples of the training thread show it: assertions, checks, torch's profiler."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flatout.measure.samples import Samples, frames_of, line_of
from flatout.results import Line

ASSERTIONS, CHECKS, PROFILER = "assertions", "checks", "profiler"
_ASSERTS = re.compile(r"^assert\b|\btorch\._assert\w*\(")
_CHECKS = re.compile(r"\b(isfinite|isnan|isinf)\(.*\)\.(any|all)\(")
_CHECKERS = re.compile(r"/(beartype|typeguard|jaxtyping)/")
_COMPILER = re.compile(r"/torch/_(dynamo|inductor|functorch)/")
_PROFILER = re.compile(r"/torch/(profiler/|autograd/profiler(_util|_legacy)?\.py$)")
# Of the same file: the region that every optimizer step opens, and functions of Pythons that do not name their class.
_REGION = re.compile(r"^(_?[Rr]ecord_?[Ff]unction\w*\.|__enter__$|__exit__$|__init__$)")


@dataclass(frozen=True)
class DebugCode:
    """One kind of code for debugging.

    Attributes:
        share: of the window's time.
        line: its hottest line.
    """

    share: float
    line: Line


def find_debug_code(samples: Samples, begin_ns: int, finish_ns: int) -> dict[str, DebugCode]:
    """Each kind that was met in the window, by name."""
    inside = samples.take((samples.time_ns >= begin_ns) & (samples.time_ns < finish_ns))
    kinds = {int(id): kind_of(frames_of(inside.names, int(id))) for id in np.unique(inside.stack)}
    total = float(inside.weight.sum())
    found: dict[str, dict[Line, float]] = {}
    for id, kind in kinds.items():
        line = line_of(inside.names, id)
        if kind is not None and line is not None:
            weights = found.setdefault(kind, {})
            weights[line] = weights.get(line, 0.0) + float(inside.weight[inside.stack == id].sum())
    return {
        kind: DebugCode(sum(weights.values()) / total, max(weights, key=lambda line: weights[line]))
        for kind, weights in found.items()
        if total > 0
    }


def kind_of(frames: Sequence[Sequence[Any]]) -> str | None:
    """The kind of code for debugging that a sampled stack runs; None: it runs none.

    Args:
        frames: innermost first, ``[file, line, function, source, is_user]`` as the record keeps them.
    """
    for file, _line, function, source, user in frames:
        path = str(file).replace("\\", "/")
        if user:
            text = str(source).strip()
            return ASSERTIONS if _ASSERTS.search(text) else CHECKS if _CHECKS.search(text) else None
        if _COMPILER.search(path):  # what it compiles is on the stack, and does not run
            return None
        if _CHECKERS.search(path):
            return ASSERTIONS
        if _PROFILER.search(path) and not _REGION.search(str(function)):
            return PROFILER
    return None
