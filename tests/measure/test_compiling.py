"""Compilations and graph breaks, from hand-made records."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.measure.build import build_view
from flatout.measure.compiling import Compiling
from flatout.measure.graphs import GraphCalls
from flatout.probe import events as kinds
from flatout.record import load_run
from tests.measure.test_operators import Trace
from tests.record.synthetic import ProcessBuilder, RunBuilder

SIZE = "tensor 'x' size mismatch at index 0. expected 8, actual 7"


def compiled(
    main: ProcessBuilder, seconds: float, reason: str = "", function: str = "Net.forward", **fields: object
) -> None:
    """One compilation inside a forward pass."""
    place = {"file": "train.py", "line": 20, "function": function, "source": "def forward(self, x):"}
    id = main.name("compilation", **place, reason=reason, **fields)
    with main.inside(kinds.FORWARD, main.text("Net"), 1, 1):
        main.spend(kinds.COMPILE, seconds, id)
        main.pause(0.01)
    main.spend(kinds.BACKWARD, 0.01)
    main.spend(kinds.OPTIMIZER, 0.01, main.text("SGD"))


def steps(main: ProcessBuilder, count: int) -> None:
    for _ in range(count):
        main.step(forward_s=0.01, backward_s=0.01, optimizer_s=0.01)


def measured(run: RunBuilder) -> Compiling | str | None:
    view = build_view(load_run(run.write()))
    assert view is not None
    return view.compiling


def found(run: RunBuilder) -> Compiling:
    answer = measured(run)
    assert isinstance(answer, Compiling), answer
    return answer


def test_a_training_that_compiles_nothing_has_none(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    steps(run.process(), 10)
    assert measured(run) is None


def test_the_first_compilation_is_start_up(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    compiled(main, 2.0)
    steps(main, 10)
    compiling = found(run)
    assert compiling.again_s == 0 and compiling.functions == () and not compiling.goes_on


def test_one_compilation_more_teaches_torch_which_sizes_vary(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    compiled(main, 2.0)
    steps(main, 10)
    compiled(main, 3.0, SIZE)
    steps(main, 2)
    compiling = found(run)
    assert compiling.again_s == pytest.approx(3.0)
    assert not compiling.goes_on


def test_other_guards_that_fail_once_or_twice_are_part_of_the_warm_up(tmp_path: Path) -> None:
    """A smaller last batch, validation, and the last batch of that."""
    run = RunBuilder(tmp_path)
    main = run.process()
    compiled(main, 2.0)
    for reason in (SIZE, "___check_global_state()", SIZE.replace("7", "3"), "self.training"):
        steps(main, 3)
        compiled(main, 1.0, reason)
    assert not found(run).goes_on


def test_functions_that_are_compiled_on_and_on_are_named_with_the_failed_guard(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    compiled(main, 2.0)
    for actual in "753":
        steps(main, 3)
        compiled(main, 1.0, SIZE.replace("7", actual))
    compiled(main, 0.5, "self.step == 3", function="Net.torch_dynamo_resume_in_forward_at_24")
    steps(main, 1)
    compiling = found(run)
    assert compiling.goes_on
    assert compiling.again_s == pytest.approx(3.5)
    first, second = compiling.functions
    assert (first.times, first.reasons[0], first.line.line) == (3, SIZE, 20)
    assert first.line.seconds == pytest.approx(3.0)
    assert (second.line.line, second.line.function, second.repeated) == (24, "forward", False)


def test_a_backward_graph_that_is_compiled_late_belongs_to_its_function(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    compiled(main, 2.0)
    for _ in range(3):
        compiled(main, 1.0, SIZE)
        main.spend(kinds.COMPILE, 0.5, main.text("torch.compile"))
        steps(main, 1)
    compiling = found(run)
    assert compiling.again_s == pytest.approx(4.5)
    assert compiling.functions[0].times == 3
    assert compiling.functions[0].line.seconds == pytest.approx(4.5)


def test_compilations_of_the_first_steps_alone_do_not_go_on_unless_torch_gave_up(tmp_path: Path) -> None:
    for folder, limited in (("quiet", {}), ("limited", {"limited": True})):
        run = RunBuilder(tmp_path / folder)
        main = run.process()
        compiled(main, 2.0)
        for _ in range(3):
            compiled(main, 1.0, SIZE)
        compiled(main, 0.001, SIZE, **limited)
        steps(main, 50)
        compiling = found(run)
        assert compiling.goes_on is bool(limited)
        assert compiling.functions[0].limited is bool(limited)


def test_a_record_without_functions_says_that_they_are_unknown(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    steps(main, 3)
    main.spend(kinds.COMPILE, 1.0, main.text("torch.compile"))
    steps(main, 3)
    answer = measured(run)
    assert isinstance(answer, str) and "not shown by this version" in answer


GRAPH_US, BETWEEN_US, EAGER_US = 100.0, 300.0, 50.0


def broken(folder: Path, *, pieces: int, traced: bool = True) -> Compiling:
    """A model in so many pieces, with an uncompiled operator in each gap; steps as in the trace."""
    run = RunBuilder(folder)
    main = run.process()
    place = {"file": "train.py", "line": 31, "function": "forward", "source": "norm = hidden.norm().item()"}
    main.name("graph_break", **place, reason="Tensor.item", count=pieces - 1)
    compiled(main, 1.0)
    steps(main, 40)
    path = run.write()
    if traced:
        trace = Trace()
        for _ in range(3):
            for piece in range(pieces):
                trace.add("cpu_op", "CompiledFunction", trace.now, GRAPH_US)
                trace.add("user_annotation", "## Call CompiledFxGraph abc ##", trace.now + 5, GRAPH_US - 10)
                trace.now += GRAPH_US
                if piece < pieces - 1:
                    trace.add("cpu_op", "aten::item", trace.now + 20, EAGER_US)
                    trace.now += BETWEEN_US
            trace.now += 1000.0  # the loss
            trace.add("cpu_op", "autograd::engine::evaluate_function: CompiledFunctionBackward", trace.now, 60.0)
            trace.add("cpu_op", "CompiledFunctionBackward", trace.now + 1, 50.0)
            trace.add("user_annotation", "## Call CompiledFxGraph def ##", trace.now + 2, 40.0)
            trace.now += 60.0
            trace.update()
        trace.write(path / f"trace-{main.pid}-{main.start_ns}.json.gz")
    view = build_view(load_run(path))
    assert view is not None and isinstance(view.compiling, Compiling)
    return view.compiling


def test_the_time_between_the_pieces_is_measured_without_the_operators_there(tmp_path: Path) -> None:
    compiling = broken(tmp_path, pieces=4)
    calls = compiling.calls
    assert isinstance(calls, GraphCalls)
    assert calls.count == pytest.approx(4)
    assert calls.between_s == pytest.approx(3 * (BETWEEN_US - EAGER_US) / 1e6)
    assert calls.between_share == pytest.approx(750 / 1300)
    assert (compiling.breaks[0].line.line, compiling.breaks[0].reason, compiling.breaks[0].count) == (
        31,
        "Tensor.item",
        3,
    )


def test_without_a_trace_breaks_are_counted_and_their_cost_is_unknown(tmp_path: Path) -> None:
    compiling = broken(tmp_path, pieces=4, traced=False)
    assert compiling.calls == "no kernel trace was taken"
    assert compiling.breaks[0].count == 3
