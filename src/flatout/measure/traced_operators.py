"""The operators of a step, measured from the kernel trace."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flatout.measure.account_ids import ACCOUNTS
from flatout.measure.accounts import Charged
from flatout.measure.call_loops import call_loop
from flatout.measure.calling_lines import calling_lines
from flatout.measure.compiled_calls import generated_ns, is_compiled_call, is_graph_call
from flatout.measure.costly_operators import (
    attribute,
    by_cost,
    launched_by,
    with_lines,
)
from flatout.measure.dense_gradients import dense_gradients
from flatout.measure.full_sorts import full_sorts
from flatout.measure.fusion import fusible
from flatout.measure.kernel_work import PRODUCT, kernel_work
from flatout.measure.needless_logits import needless_logits
from flatout.measure.operators import Operators
from flatout.measure.page_faults import PageFaults
from flatout.measure.recurrent import called_by_user, recurrent_share, unfused_share
from flatout.measure.repeated_weights import read_repeated_weight
from flatout.measure.roofline import (
    costliest,
    measure_roofline,
    possible,
    read_ceilings,
)
from flatout.measure.samples import Samples
from flatout.measure.slice_gradients import slice_gradients
from flatout.measure.slice_writes import slice_writes
from flatout.measure.slow_kernels import NO_SLOW_KERNELS, slow_kernels
from flatout.measure.timeline import Accrual, Flags, Floats, union
from flatout.measure.traced_faults import added_faults, without_added_faults
from flatout.measure.traced_steps import LOADING, STEP, fastest_step, named, own_time
from flatout.measure.training import Training
from flatout.measure.usual_steps import unusual
from flatout.measure.without_operators import long_pieces_ns, share_outside_torch
from flatout.measure.zero_operands import zero_operands
from flatout.record import Run
from flatout.record.kernel_trace import KernelTrace, Spans, read_trace
from flatout.results import Ledger

REFERENCE = "flatout.reference"  # the region in which the probe calls operators that compute nothing
_READS = ("aten::_local_scalar_dense", "aten::item", "aten::nonzero")
_FACTORISING = re.compile(
    r"^aten::_?(linalg_)?(cholesky|lu_factor|lu_solve|solve|triangular_solve|inv|eig|svd|qr|lstsq)"
)
_COMPUTE = ("forward", "loss", "backward", "optimizer")
_MUCH_QUEUED = 0.2  # of the window
_HELD_UP_NS = 1_000_000  # longer than other calls with the same inputs: as long as another process keeps a core


def measure_operators(
    run: Run, training: Training, ledger: Ledger, queued: float, faults: PageFaults | None, charged: Charged
) -> Operators | str:
    """Measure the fastest of the traced steps; or say why it cannot be done.

    Args:
        run: the record.
        training: its training side.
        ledger: of the window.
        queued: share of the window in which the training thread waited for a core.
        faults: page faults of the training process in the window; None: not counted.
        charged: the training thread's time, with its stack samples.
    """
    because = unusual(training.process, "traced")
    if because:
        return because
    trace = read_trace(run.path / f"trace-{training.process.key}.json.gz")
    if trace is None:
        return "no kernel trace was taken"
    if isinstance(trace, str):
        return trace
    reference = training.process.info.get("reference") or {}
    operator_ns, factor = reference.get("operator_ns"), reference.get("float64_factor")
    measured = _reference(trace)
    if operator_ns is None or factor is None or measured is None:
        return f"the reference operators were not timed ({reference.get('failed') or 'the trace ended early'})"
    blocked = charged.blocked_share(_COMPUTE, training.window_begin_ns, training.window_end_ns)
    outside = share_outside_torch(charged, _COMPUTE, training.window_begin_ns, training.window_end_ns)
    window = _Window(ledger, queued, faults, blocked, outside, charged.samples, _usable_cores(run))
    factors = _WideFactors(float(factor), float(reference.get("float64_convolution_factor") or factor))
    return _measured(trace, training, window, _Costs(operator_ns, *measured), factors)


def _usable_cores(run: Run) -> float | None:
    cores = (run.machine.get("cores") or {}).get("usable")
    return float(cores) if cores is not None else None


@dataclass(frozen=True)
class _Window:
    ledger: Ledger
    queued: float  # share in which the training thread waited for a core
    faults: PageFaults | None
    blocked: float  # share of the time computing
    outside: float  # share of the time computing in which torch's own Python code is not the innermost
    samples: Samples
    cores: float | None  # that the training may use

    def step_s(self, *accounts: str) -> float:
        """Seconds of a step in these accounts."""
        shares = sum(self.ledger.share(id) for id in accounts)
        return shares * self.ledger.window_s / self.ledger.steps.count


@dataclass(frozen=True)
class _Costs:
    """Nanoseconds of an operator that computes nothing."""

    untraced: int  # called from Python
    traced: float  # as its span in the trace
    spacing: float  # from one to the next in the trace

    @property
    def tracing(self) -> float:
        """What tracing adds to each operator."""
        return max(self.spacing - self.untraced, 0.0)


@dataclass(frozen=True)
class _WideFactors:
    """Time in float64 over that in float32, as measured on the CPU."""

    product: float
    convolution: float

    def saved(self, names: Sequence[str], product: Flags, on_device: bool) -> Floats:
        """Part of the time of each kernel that float32 saves: by these factors, and by half its bytes elsewhere.

        On a GPU they were not measured: 2 is the least of all models. Fourier transforms took 1.7 to 1.8 times as long
        on one CPU, which half the bytes explain.
        """
        convolution, transform = (np.array([part in name for name in names], bool) for part in ("conv", "fft"))
        factors = np.where(convolution, self.convolution, self.product)
        return np.where(product & ~transform & (not on_device), 1.0 - 1.0 / np.maximum(factors, 1.0), 0.5)


def _reference(trace: KernelTrace) -> tuple[float, float] | None:
    regions = [place for place, name in enumerate(trace.regions.name) if name == REFERENCE]
    if not regions:
        return None
    begin, finish = trace.regions.start[regions[0]], trace.regions.end[regions[0]]
    inside = trace.operators.take((trace.operators.start >= begin) & (trace.operators.end <= finish))
    plain = np.array([name == "aten::add" for name in inside.name], bool)
    start, end = inside.start[plain], inside.end[plain]
    return (float(np.median(end - start)), float(np.median(np.diff(start)))) if len(start) > 1 else None


def _measured(
    trace: KernelTrace, training: Training, window: _Window, costs: _Costs, factors: _WideFactors
) -> Operators | str:
    step = fastest_step(trace, training)
    if step is None:
        return "no whole step is in the kernel trace"
    begin, finish, steps = step
    loading = named(trace.regions, LOADING)
    waits = union(loading.start, loading.end)
    operators = trace.operators
    own, children, parent = own_time(operators)
    # Of an operator that calls others, what calling and tracing them took is no work of its own.
    work = np.maximum(own - costs.traced - costs.tracing * children, 0.0)
    calls = is_compiled_call(trace)
    calling = np.where(calls, np.maximum(work - generated_ns(trace, calls), 0.0), 0.0)
    work = work - calling
    usual = _undisturbed(operators, work, window.queued)
    held_up, work = np.where(work - usual > _HELD_UP_NS, work - usual, 0.0), usual
    inside = (operators.start >= begin) & (operators.end <= finish) & (waits.at(operators.start) < 0)
    leaf = inside & (children == 0)
    if not leaf.any():
        return "no operator is in the kernel trace"
    rows, spans, work = np.flatnonzero(inside), operators.take(inside), work[inside]
    attribution = attribute(
        operators, parent, children, training.process.info.get("param_dtype"), training.process.info.get("autocast")
    )
    owner = attribution.owner[rows]
    has_kernels = len(trace.kernels) > 0
    ceilings = read_ceilings(training.process.info, window.cores)
    wall = finish - begin - float(Accrual(waits).between([begin], [finish])[0])
    if not has_kernels:
        traced_ns = finish - begin - costs.tracing * len(rows)
        slower = traced_ns / steps / max(1e9 * window.step_s(*ACCOUNTS), 1.0)
        added_ns = added_faults(training.process.info, window.faults, slower) * (finish - begin)
        work = without_added_faults(work, owner, operators.name, attribution.costs, ceilings, added_ns)
    # One that reads a value back waits for the device meanwhile.
    called = work[np.array([not name.startswith(_READS) for name in spans.name], bool)]
    launching_s = float((called.sum() + costs.untraced * np.count_nonzero(leaf)) / (1e9 * steps))
    if has_kernels:
        spans = trace.kernels.take((trace.kernels.start >= begin) & (trace.kernels.end <= finish))
        busy = union(spans.start, spans.end).length.sum()
        work = (spans.end - spans.start).astype(float)
        work *= busy / work.sum() if work.sum() else 0.0  # kernels of several streams overlap
        owner = launched_by(attribution, operators, spans)
    product = np.array([bool(PRODUCT.search(name)) for name in spans.name], bool)
    per_s = 1e9 * steps
    kernels_s = float(work.sum() / per_s)
    in_graph_calls_s = float(calling[is_graph_call(trace) & inside].sum() / per_s)
    traced_s = (wall - costs.tracing * np.count_nonzero(inside)) / per_s
    # Beside a GPU, the host's loop is not what the step takes.
    weight = None if has_kernels else read_repeated_weight(training.process)
    loop = call_loop(operators, inside, parent, weight, steps, costs.tracing, 1e9 * steps * traced_s)
    computed_s = window.step_s(*_COMPUTE)
    # The traced steps may have been disturbed less, or more, than those of the window: the smaller difference counts.
    other_s = window.step_s(*(id for id in ACCOUNTS if id not in (*_COMPUTE, "batch_wait")))
    if training.loader is None:
        other_s += window.step_s("batch_wait")
    running = 1.0 - min(window.queued, 0.99)
    traced_computing_s = traced_s - other_s * running
    # Operators whose threads wait for one that has no core take long; nothing passes around them meanwhile.
    held_up_s = 0.0 if has_kernels else float(held_up[inside].sum() / per_s)
    around_s = min(computed_s * running, traced_computing_s - held_up_s) - kernels_s
    overhead_s = max(float(around_s), 0.0) / running  # a thread that computes less waits less for a core, too
    shown = [operators.take(inside), *([trace.kernels] if has_kernels else [])]
    free_s = max(long_pieces_ns(shown, waits, begin, finish) / per_s - other_s * running, 0.0)
    part = free_s / traced_computing_s if traced_computing_s > 0 else 0.0
    # A thread that loses its core for milliseconds calls no operator either.
    lost = window.queued * window.step_s(*ACCOUNTS) / computed_s if computed_s > 0 else 0.0
    other_code_s = max(min(part, window.outside) - lost, 0.0) * computed_s
    found = by_cost(operators, attribution, owner, spans.name, work, steps)
    all_operators = possible(with_lines(found, calling_lines(window.samples)), ceilings)
    by_user = inside & called_by_user(attribution.caller)
    # A function of the user's may compute in other libraries, which need not know float32.
    wide = spans.wide & (has_kernels | np.array([name.startswith("aten::") for name in spans.name], bool))
    outermost = int(np.count_nonzero(inside & (parent < 0)))
    updates = named(trace.regions, STEP)
    of_model = union(updates.start, updates.end).at(operators.start[rows]) < 0
    return Operators(
        count=float(np.count_nonzero(leaf) / steps),
        median_s=float(np.median((operators.end - operators.start)[leaf])) / 1e9,
        reference_s=costs.untraced / 1e9,
        computed_s=computed_s,
        overhead_s=overhead_s,
        kernels_s=kernels_s,
        in_graph_calls_s=min(in_graph_calls_s, overhead_s),
        pointwise_s=float(work[~product].sum() / per_s),
        wide_s=float(work[wide].sum() / per_s),
        saved_by_float32_s=float((work * factors.saved(spans.name, product, has_kernels))[wide].sum() / per_s),
        conversions=float(np.count_nonzero(spans.converts) / steps) if trace.strides else None,
        conversions_s=float(work[spans.converts].sum() / per_s),
        float64_factor=factors.product,
        on_device=has_kernels,
        unfused=0.0 if has_kernels else unfused_share(operators, parent, leaf),
        recurrent=recurrent_share(operators, parent, leaf),
        blocked_s=0.0 if has_kernels else window.blocked * computed_s,
        fusible=fusible(attribution, rows, of_model, owner, work, steps),
        costliest=costliest(all_operators),
        roofline=measure_roofline(all_operators, ceilings, overhead_s, window.queued),
        work=kernel_work(found),
        ceilings=ceilings,
        launching_s=launching_s,
        factorised_s=float(
            work[wide & np.array([bool(_FACTORISING.search(name)) for name in spans.name], bool)].sum() / per_s
        ),
        other_code_s=other_code_s,
        loop=loop,
        slices=slice_gradients(operators, by_user, owner if has_kernels else rows, work, steps, outermost),
        writes=slice_writes(operators, inside, owner if has_kernels else rows, work, steps),
        sorts=full_sorts(operators, inside, parent, owner if has_kernels else rows, work, steps),
        slow=NO_SLOW_KERNELS
        if has_kernels
        else slow_kernels(operators, inside, parent, work, steps, training.process.info.get("reference") or {}),
        logits=needless_logits(
            operators, inside, owner if has_kernels else rows, work, steps, training.process.info.get("loss_targets")
        ),
        zeros=zero_operands(
            operators, inside, owner if has_kernels else rows, work, steps, training.process.info.get("zero_operands")
        ),
        dense=dense_gradients(operators, inside, owner if has_kernels else rows, work, steps),
    )


def _undisturbed(operators: Spans, work: Floats, queued: float) -> Floats:
    """The usual work of all calls with the same inputs: other processes hold up single calls for milliseconds.

    The median; where the training waits much for a core, most calls may be held up, and one of the shortest counts.
    """
    # Not as an array of texts: each would take as much as the longest, and some operators take thousands of tensors.
    numbers: dict[str, int] = {}
    group = np.array([numbers.setdefault(call, len(numbers)) for call in operators.call], np.int64)
    order = np.lexsort((work, group))
    first = np.searchsorted(group[order], np.arange(int(group.max(initial=-1)) + 1))
    count = np.diff(np.append(first, len(group)))
    if queued >= _MUCH_QUEUED:
        return np.asarray(work[order[first + count // 10]][group], np.float64)
    median = (work[order[first + (count - 1) // 2]] + work[order[first + count // 2]]) / 2
    return np.asarray(median[group], np.float64)
