"""What calling compiled graphs takes, apart from what the graphs compute."""

from __future__ import annotations

import re

import numpy as np

from flatout.measure.timeline import GAP, Flags, Floats, exclusive_pieces, intervals, overlay, union
from flatout.record.kernel_trace import KernelTrace

# Names that torch's compiler gives to its own parts: graphs with their backward passes; frames, guards and wrappers.
_GRAPH_CALL = re.compile(r"CompiledFunction(Backward)?$")
_AROUND = re.compile(r"Pregraph bytecode$|Torch-Compiled Region|TorchDynamo |AOTDispatcher ")
_GENERATED = "## Call CompiledFxGraph "  # the region in which generated code runs, operators and kernels


def is_compiled_call(trace: KernelTrace) -> Flags:
    """Operators of the trace that belong to calling compiled graphs."""
    return is_graph_call(trace) | _matching(trace, _AROUND)


def is_graph_call(trace: KernelTrace) -> Flags:
    """Those of them that are the calls themselves, in a forward or a backward pass."""
    return _matching(trace, _GRAPH_CALL)


def generated_ns(trace: KernelTrace, calls: Flags) -> Floats:
    """Time of each call in kernels that the compiler generated, which show as no operators of their own, ns.

    Args:
        trace: the kernel trace.
        calls: operators that belong to calling compiled graphs.
    """
    operators, regions = trace.operators, trace.regions
    chosen = np.array([name.startswith(_GENERATED) for name in regions.name], bool)
    found = np.zeros(len(operators))
    rows = np.flatnonzero(calls)
    if not chosen.any() or not len(rows):
        return found
    parts = overlay(
        union(regions.start[chosen], regions.end[chosen]), union(operators.start[~calls], operators.end[~calls])
    )
    own = intervals(parts.start[parts.cover < 0], parts.end[parts.cover < 0])
    start, end = operators.start[rows], operators.end[rows]
    innermost = exclusive_pieces(start, end, int(start.min()), int(end.max()))
    inside = overlay(own, innermost)
    owner = np.where(inside.cover >= 0, innermost.owner[inside.cover], GAP)
    np.add.at(found, rows[owner[owner != GAP]], (inside.end - inside.start)[owner != GAP])
    return found


def _matching(trace: KernelTrace, pattern: re.Pattern[str]) -> Flags:
    return np.array([bool(pattern.match(name)) for name in trace.operators.name], bool)
