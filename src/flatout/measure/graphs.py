"""Calls of compiled graphs in a traced step, and the time between them."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from flatout.measure.timeline import Accrual, Flags, Ints, Pieces, union
from flatout.measure.traced_steps import LOADING, STEP, fastest_step
from flatout.measure.training import Training
from flatout.record import Run
from flatout.record.kernel_trace import KernelTrace, Spans, read_trace

_CALL = re.compile(r"CompiledFunction$|## Call CompiledFxGraph ")
_BETWEEN = re.compile(f"{re.escape(STEP)}|{re.escape(LOADING)}")
_BACKWARD = re.compile(r"CompiledFunctionBackward|autograd::engine::evaluate_function")


@dataclass(frozen=True)
class GraphCalls:
    """Calls of compiled graphs in the forward passes of one training step, backward excluded.

    Attributes:
        count: calls.
        between_s: seconds from the end of each call to the next one of the same pass, without the operators that run
            there: guards, and Python that was not compiled.
        between_share: the same as a part of the time from the first call of a pass to the end of its last.
    """

    count: float
    between_s: float
    between_share: float


def measure_graph_calls(run: Run, training: Training) -> GraphCalls | str:
    """Measure the fastest of the traced steps; or say why it cannot be done."""
    trace = read_trace(run.path / f"trace-{training.process.key}.json.gz")
    if trace is None:
        return "no kernel trace was taken"
    if isinstance(trace, str):
        return trace
    step = fastest_step(trace, training)
    if step is None:
        return "no whole step is in the kernel trace"
    calls = _calls(trace)
    begin, finish, steps = step
    calls = calls.take((calls.start >= begin) & (calls.end <= finish))
    if not len(calls):
        return "no call of a compiled graph is in the kernel trace"
    gap_begin, gap_end = calls.end[:-1], calls.start[1:]
    # A backward pass, an update or the next batch lies between two passes.
    boundaries = np.sort(np.concatenate([_starts(trace.operators, _BACKWARD), _starts(trace.regions, _BETWEEN)]))
    same_pass = np.searchsorted(boundaries, gap_begin) == np.searchsorted(boundaries, gap_end)
    gap_begin, gap_end = gap_begin[same_pass], gap_end[same_pass]
    passes_ns = float((gap_end - gap_begin).sum() + calls.length.sum())
    operators = trace.operators
    eager = np.array(["::" in name for name in operators.name], bool)
    eager_ns = float(Accrual(union(operators.start[eager], operators.end[eager])).between(gap_begin, gap_end).sum())
    between_ns = float((gap_end - gap_begin).sum()) - eager_ns
    return GraphCalls(len(calls) / steps, between_ns / 1e9 / steps, between_ns / passes_ns)


def _calls(trace: KernelTrace) -> Pieces:
    """The calls in forward passes; those inside of each other are one."""
    inside_backward = union(*_edges(trace.operators, _matching(trace.operators, _BACKWARD)))
    start, end = [], []
    for spans in (trace.operators, trace.regions):
        chosen = _matching(spans, _CALL) & (inside_backward.at(spans.start) < 0)
        start.append(spans.start[chosen])
        end.append(spans.end[chosen])
    return union(np.concatenate(start), np.concatenate(end))


def _starts(spans: Spans, pattern: re.Pattern[str]) -> Ints:
    return spans.start[_matching(spans, pattern)]


def _matching(spans: Spans, pattern: re.Pattern[str]) -> Flags:
    return np.array([bool(pattern.match(name)) for name in spans.name], bool)


def _edges(spans: Spans, chosen: Flags) -> tuple[Ints, Ints]:
    return spans.start[chosen], spans.end[chosen]
