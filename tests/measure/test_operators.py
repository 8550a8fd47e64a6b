"""Operators of a step, from hand-made kernel traces."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from flatout.measure.build import build_view
from flatout.measure.operators import Operators
from flatout.measure.roofline import NOT_MEASURED, Roofline
from flatout.measure.traced_operators import REFERENCE
from flatout.probe.contract import BACKWARD_ENDED
from flatout.record import load_run
from flatout.record.kernel_trace import KernelTrace, read_trace
from tests.measure.kernel_traces import SPACING_US, TRACED_US, UNTRACED_NS, Trace
from tests.record.synthetic import RunBuilder


def traced(count: int, work_us: float, type: str = "float", name: str = "aten::mul") -> Trace:
    """Three steps of this many operators."""
    trace = Trace()
    for _ in range(3):
        trace.operators(count, work_us, type, name)
        trace.update()
    trace.reference()
    return trace


def measured(folder: Path, trace: Trace | None, step_s: float, states: str = "R", **info: Any) -> Operators | str:
    """Of a run whose steps take this long without the trace."""
    run = RunBuilder(folder)
    main = run.process(
        reference={"operator_ns": UNTRACED_NS, "float64_factor": 2.5, "float64_convolution_factor": 4.0}, **info
    )
    for step in range(40):
        main.sample(main.now_s + 0.1 * step_s, "scores = queries @ keys", 21, state=states[step % len(states)])
        main.step(forward_s=0.4 * step_s, backward_s=0.4 * step_s, optimizer_s=0.2 * step_s)
    path = run.write()
    if trace is not None:
        trace.write(path / f"trace-{main.pid}-{main.start_ns}.json.gz")
    view = build_view(load_run(path))
    assert view is not None
    return view.operators


def test_operators_that_compute_nothing_are_all_overhead(tmp_path: Path) -> None:
    found = measured(tmp_path, traced(1000, 0.0), step_s=1000 * 1.0e-6)
    assert isinstance(found, Operators)
    assert found.count == pytest.approx(1000)
    assert found.kernels_s == pytest.approx(0.0)
    assert found.overhead_s == pytest.approx(0.001, rel=0.02)
    assert found.reference_s == pytest.approx(1e-6)


def test_large_operators_leave_little_overhead(tmp_path: Path) -> None:
    found = measured(tmp_path, traced(50, 1000.0), step_s=50 * 1001e-6)
    assert isinstance(found, Operators)
    assert found.kernels_s == pytest.approx(0.050, rel=0.01)
    assert found.overhead_s / found.computed_s < 0.01


def test_without_an_optimizer_steps_are_divided_where_backward_passes_end(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process(reference={"operator_ns": UNTRACED_NS, "float64_factor": 2.5})
    for _ in range(40):
        main.step(forward_s=0.02, backward_s=0.03, optimizer_s=None)
    path = run.write()
    trace = Trace()
    for _ in range(4):
        trace.operators(50, 1000.0)
        trace.add("user_annotation", BACKWARD_ENDED, trace.now, 0.0)
    trace.reference()
    trace.write(path / f"trace-{main.pid}-{main.start_ns}.json.gz")
    view = build_view(load_run(path))
    assert view is not None and isinstance(view.operators, Operators)
    assert view.operators.count == pytest.approx(50)
    assert view.operators.kernels_s == pytest.approx(0.050, rel=0.01)


def test_an_operator_that_reads_a_value_back_is_not_called_longer(tmp_path: Path) -> None:
    """It waits for the device: what the host needs to launch a step does not contain that."""
    trace = Trace()
    for _ in range(3):
        trace.operators(50, 100.0)
        trace.operators(1, 100_000.0, name="aten::_local_scalar_dense")
        trace.update()
    trace.reference()
    found = measured(tmp_path, trace, step_s=0.105)
    assert isinstance(found, Operators)
    assert found.launching_s == pytest.approx(50 * 101e-6, rel=0.02)


def test_the_overhead_is_the_smaller_difference_of_window_and_trace(tmp_path: Path) -> None:
    """The window ran beside other work, and its steps took three times as long as those of the trace."""
    found = measured(tmp_path, traced(50, 1000.0), step_s=0.150)
    assert isinstance(found, Operators)
    assert found.overhead_s / found.computed_s < 0.01


def test_a_step_that_sleeps_calls_no_operator_meanwhile(tmp_path: Path) -> None:
    """Half of the stack samples met the training thread asleep: operators took no more than the other half."""
    found = measured(tmp_path, traced(1000, 0.0), step_s=1000 * 1.0e-6, states="RS")
    assert isinstance(found, Operators)
    assert found.overhead_s == pytest.approx(0.001, rel=0.02)
    assert found.blocked_s == pytest.approx(0.0005, rel=0.1)
    assert found.removable_overhead_s == pytest.approx(0.0005, rel=0.1)


def test_steps_of_two_kinds_are_measured_together(tmp_path: Path) -> None:
    """The critic computes much more than the generator, whose step is no undisturbed one of the critic's."""
    trace = Trace()
    for count in (200, 200, 10):
        trace.operators(count, 100.0)
        trace.update()
    trace.reference()
    found = measured(tmp_path, trace, step_s=105 * 101e-6)
    assert isinstance(found, Operators)
    assert found.count == pytest.approx(105) and found.kernels_s == pytest.approx(105 * 100e-6, rel=0.01)


def test_the_loop_of_a_recurrent_layer_is_no_overhead_that_can_be_removed(tmp_path: Path) -> None:
    trace = Trace()
    for _ in range(3):
        begin = trace.now
        trace.operators(300, 0.0)
        trace.add("cpu_op", "aten::gru", begin, trace.now - begin)
        trace.operators(100, 0.0)
        begin = trace.now
        trace.operators(400, 0.0)  # its backward pass has the same proportions, and is left out
        trace.add("cpu_op", "autograd::engine::evaluate_function: MmBackward0", begin, trace.now - begin)
        trace.update()
    trace.reference()
    found = measured(tmp_path, trace, step_s=0.001)
    assert isinstance(found, Operators)
    assert found.recurrent == pytest.approx(0.75)
    assert found.removable_overhead_s == pytest.approx(0.25 * found.overhead_s)


@pytest.mark.parametrize(
    ("type", "layer", "expected"), [("double", "lstm", 0.75), ("double", "gru", 0), ("float", "lstm", 0)]
)
def test_the_overhead_of_an_lstm_in_64_bits_goes_with_32(
    tmp_path: Path, type: str, layer: str, expected: float
) -> None:
    """In 32 bits oneDNN computes the layer in one operator; a GRU it does not."""
    trace = Trace()
    for _ in range(3):
        begin = trace.now
        trace.operators(300, 0.0, type)
        trace.add("cpu_op", f"aten::{layer}", begin, trace.now - begin)
        trace.operators(100, 0.0, type)
        trace.update()
    trace.reference()
    found = measured(tmp_path, trace, step_s=0.001)
    assert isinstance(found, Operators)
    assert found.unfused == pytest.approx(expected)
    assert found.saved_overhead_s == pytest.approx(0.8 * expected * found.overhead_s)


def compiled_calls(trace: Trace, count: int, around_us: float, generated_us: float) -> None:
    """Compiled graphs of ten operators each; besides, this time in generated kernels."""
    for name in ("CompiledFunction", "CompiledFunctionBackward"):
        for _ in range(count):
            begin = trace.now
            trace.now += TRACED_US + around_us
            inside = trace.now
            trace.operators(10, 100.0)
            trace.now += generated_us
            if generated_us:
                trace.add("user_annotation", "## Call CompiledFxGraph f1 ##", inside, trace.now - inside)
            trace.add("cpu_op", name, begin, trace.now - begin)
            trace.now += SPACING_US - TRACED_US


@pytest.mark.parametrize("generated_us", [0.0, 800.0])
def test_calls_of_compiled_graphs_are_overhead_and_generated_kernels_are_not(
    tmp_path: Path, generated_us: float
) -> None:
    trace = Trace()
    for _ in range(3):
        compiled_calls(trace, 20, 500.0, generated_us)
        trace.update()
    trace.reference()
    in_kernels_s = 40 * (10 * 100e-6 + generated_us * 1e-6)
    found = measured(tmp_path, trace, step_s=40 * 500e-6 + in_kernels_s)
    assert isinstance(found, Operators)
    assert found.kernels_s == pytest.approx(in_kernels_s, rel=0.02)
    assert found.in_graph_calls_s == pytest.approx(40 * 500e-6, rel=0.05)
    assert found.overhead_s == pytest.approx(40 * 500e-6, rel=0.05)


def test_one_call_that_another_process_holds_up_is_no_work(tmp_path: Path) -> None:
    trace = traced(1000, 0.0)
    trace.events[1500]["dur"] = 900.0
    found = measured(tmp_path, trace, step_s=0.001)
    assert isinstance(found, Operators)
    assert found.kernels_s == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("name", "saved"),
    [("aten::mm", 0.6), ("aten::thnn_conv2d", 0.75), ("aten::_fft_r2c", 0.5), ("aten::mul", 0.5)],
)
def test_operators_on_wide_floats_are_told_by_their_inputs(tmp_path: Path, name: str, saved: float) -> None:
    found = measured(tmp_path, traced(50, 1000.0, "double", name), step_s=50 * 1001e-6)
    assert isinstance(found, Operators)
    assert found.wide_s == pytest.approx(found.kernels_s)
    assert found.saved_by_float32_s == pytest.approx(saved * found.kernels_s)
    assert found.float64_factor == 2.5


def test_products_and_convolutions_are_not_pointwise(tmp_path: Path) -> None:
    found = measured(tmp_path, traced(50, 1000.0, "double", "aten::mm"), step_s=50 * 1001e-6)
    assert isinstance(found, Operators)
    assert found.pointwise_s == 0.0


CHANNELS_LAST, CONTIGUOUS, PART, REPEATED = [144, 1, 24, 4], [144, 36, 6, 1], [576, 72, 6, 1], [0, 36, 6, 1]


@pytest.mark.parametrize(
    ("read", "types", "count"),
    [
        (CHANNELS_LAST, ("float", "float"), 20),
        (CHANNELS_LAST, ("float", "double"), 0),
        (CONTIGUOUS, ("float", "float"), 0),
        (PART, ("float", "float"), 0),
        (REPEATED, ("float", "float"), 0),
    ],
    ids=["channels last", "a cast", "a clone", "a part", "repeated"],
)
def test_copies_into_another_layout_are_told_by_their_strides(
    tmp_path: Path, read: list[int], types: tuple[str, str], count: int
) -> None:
    trace = Trace()
    for _ in range(3):
        trace.operators(20, 1000.0)
        trace.copies(20, 1000.0, read, types)
        trace.update()
    trace.reference()
    found = measured(tmp_path, trace, step_s=40 * 1001e-6)
    assert isinstance(found, Operators)
    assert found.conversions == pytest.approx(count)
    assert found.conversions_s == pytest.approx(found.kernels_s / 2 if count else 0.0)


@pytest.mark.parametrize(
    ("around", "counted"),
    [
        (("Optimizer.step#SGD.step",), 0),
        (("torch::autograd::AccumulateGrad",), 0),
        (("aten::convolution_backward", "aten::_to_copy"), 0),
        (("aten::convolution_backward", "aten::contiguous"), 20),
        (("aten::_to_copy",), 20),
    ],
)
def test_copies_of_weights_and_their_gradients_are_not_counted(
    tmp_path: Path, around: tuple[str, ...], counted: int
) -> None:
    trace = Trace()
    for _ in range(3):
        trace.operators(20, 1000.0)
        start = trace.now
        trace.copies(20, 1000.0, CHANNELS_LAST)
        for name in around:
            category = "user_annotation" if "#" in name else "cpu_op"
            trace.add(category, name, start, trace.now - start)
        if "#" not in around[0]:
            trace.update()
    trace.reference()
    found = measured(tmp_path, trace, step_s=40 * 1001e-6)
    assert isinstance(found, Operators)
    assert found.conversions == pytest.approx(counted)
    assert (found.conversions_s > 0) is bool(counted)


def test_a_trace_without_strides_tells_no_conversions(tmp_path: Path) -> None:
    found = measured(tmp_path, traced(50, 1000.0), step_s=50 * 1001e-6)
    assert isinstance(found, Operators)
    assert found.conversions is None


def test_kernels_that_a_converting_copy_launched_convert(tmp_path: Path) -> None:
    trace = Trace()
    trace.copies(1, 1.0, CHANNELS_LAST)
    trace.events[-1]["args"]["External id"] = 5
    for number, name in ((5, "elementwise_kernel"), (6, "elementwise_kernel"), (7, "nchwToNhwcKernel<float>")):
        trace.add("kernel", name, trace.now, 3.0, **{"External id": number})
        trace.now += 5.0
    trace.write(tmp_path / "trace.json.gz")
    found = read_trace(tmp_path / "trace.json.gz")
    assert isinstance(found, KernelTrace)
    assert found.kernels.converts.tolist() == [True, False, True]


@pytest.mark.parametrize("strides", [3, [3], [[1], "x"], [[1, 2, 3, 4], [1, 2, 3, None]], [[], []]])
def test_strides_of_a_wrong_type_convert_nothing(tmp_path: Path, strides: object) -> None:
    trace = Trace()
    trace.copies(1, 1.0, CHANNELS_LAST)
    trace.events[-1]["args"]["Input Strides"] = strides
    trace.write(tmp_path / "trace.json.gz")
    found = read_trace(tmp_path / "trace.json.gz")
    assert isinstance(found, KernelTrace)
    assert not found.operators.converts.any()


def test_without_a_trace_or_a_reference_nothing_is_measured(tmp_path: Path) -> None:
    assert measured(tmp_path / "a", None, step_s=0.001) == "no kernel trace was taken"
    trace = traced(10, 0.0)
    trace.events = [event for event in trace.events if event["name"] != REFERENCE]
    told = measured(tmp_path / "b", trace, step_s=0.001)
    assert isinstance(told, str)
    assert "reference" in told


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", gzip.compress(b"{"), gzip.compress(b"[]"), gzip.compress(b'{"traceEvents": 3}')],
    ids=["empty", "no gzip", "cut off", "a list", "events that are a number"],
)
def test_a_damaged_trace_is_reported_and_not_raised(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "trace.json.gz").write_bytes(content)
    assert isinstance(read_trace(tmp_path / "trace.json.gz"), str)


def test_events_of_a_wrong_type_are_left_out(tmp_path: Path) -> None:
    trace = Trace()
    trace.operators(3, 1.0)
    trace.events += [{"ph": "X", "cat": "cpu_op", "name": 3, "ts": 1, "dur": 1}, {"ph": "X", "cat": "cpu_op"}]
    trace.events[0]["ts"] = "soon"
    trace.write(tmp_path / "trace.json.gz")
    found = read_trace(tmp_path / "trace.json.gz")
    assert isinstance(found, KernelTrace)
    assert len(found.operators) == 2


CEILINGS = {
    "device": "cpu",
    "threads": 2,
    "cores": 2.0,
    "product_flops": {"float32": 1e11},
    "convolution_flops": {},
    "memory_bps": [[1 << 20, 4e10], [1 << 26, 1e10]],
}
SIDE = 256
MFLOP = 2 * SIDE**3 / 1e6


def of_products(launched: bool = False) -> Trace:
    """Three steps of a product of two matrices, forward and backward; the kernel runs in it, or on a device."""
    trace = Trace()
    inputs = {"Input Dims": [[SIDE, SIDE], [SIDE, SIDE]], "Input type": ["float", "float"]}
    for step in range(3):
        for place, (name, node) in enumerate((("aten::matmul", ""), ("", "MmBackward0"))):
            start, own_us = trace.now, 0.0 if launched else 1000.0
            if node:
                engine = f"autograd::engine::evaluate_function: {node}"
                trace.add("cpu_op", engine, start, own_us + 9.0, **{"Sequence number": step, "Fwd thread id": 1})
            else:
                trace.add("cpu_op", name, start, own_us + 9.0, **{"Sequence number": step, **inputs})
            id = 10 * step + place + 1
            more = {"Sequence number": step} if name else {}
            trace.add("cpu_op", "aten::mm", start + 3.0, own_us + 3.0, **{"External id": id, **more, **inputs})
            if launched:
                trace.add("kernel", f"sgemm_{id}", start + 5.0, 1000.0, **{"External id": id})
            trace.now += 1010.0
        trace.update()
    trace.reference()
    return trace


@pytest.mark.parametrize("launched", [False, True])
def test_products_are_held_against_the_rates_of_the_device(tmp_path: Path, launched: bool) -> None:
    """A millisecond each, in the operator or in the kernel that it launches, at 34 of 100 GFLOP/s."""
    trace = of_products(launched)
    ceilings = CEILINGS | {"device": "cuda"} if launched else CEILINGS
    found = measured(tmp_path, trace, step_s=0.002, ceilings=ceilings)
    assert isinstance(found, Operators)
    assert found.on_device is launched
    assert isinstance(found.roofline, Roofline), found.roofline
    assert found.roofline.achieved == pytest.approx(MFLOP / 1e5 / 1e-3, rel=0.05)
    assert found.roofline.known == pytest.approx(1.0, abs=0.01)
    assert found.roofline.lost is not None and found.roofline.lost.lines[0].line == 21


def test_equal_calls_are_one_row_and_the_backward_pass_leads_to_the_call_of_the_forward_pass(tmp_path: Path) -> None:
    found = measured(tmp_path, of_products(), step_s=0.002, ceilings=CEILINGS)
    assert isinstance(found, Operators)
    first = found.costliest[0]
    assert (first.name, first.inputs, first.dtype) == ("aten::mm", "256x256, 256x256", "float32")
    assert (first.calls, first.caller) == (pytest.approx(2.0), "matmul")
    assert first.flops == pytest.approx(MFLOP * 1e6 / 1e-3, rel=0.05)
    assert first.lines[0].line == 21


def test_without_rates_operators_are_listed_all_the_same(tmp_path: Path) -> None:
    found = measured(tmp_path, of_products(), step_s=0.002)
    assert isinstance(found, Operators)
    assert found.roofline == NOT_MEASURED
    assert found.costliest[0].seconds == pytest.approx(0.002, rel=0.02)
    assert found.costliest[0].possible_s is None


def test_long_pieces_without_an_operator_are_other_code_and_no_overhead(tmp_path: Path) -> None:
    trace = Trace()
    for _ in range(3):
        trace.operators(20, 1000.0)
        trace.now += 60_000.0  # in NumPy
        trace.operators(20, 1000.0)
        trace.update()
    trace.reference()
    found = measured(tmp_path, trace, step_s=0.100)
    assert isinstance(found, Operators)
    assert found.other_code_s == pytest.approx(0.060, rel=0.03)
    assert found.removable_overhead_s < 0.005


def test_functions_of_the_users_in_float64_are_not_what_float32_saves(tmp_path: Path) -> None:
    found = measured(tmp_path, traced(10, 1000.0, "double", "PotentialSolve"), step_s=0.010)
    assert isinstance(found, Operators) and found.wide_s == 0.0
