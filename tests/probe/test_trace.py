"""The kernel trace ends by itself: after some optimizer steps, or backward passes where no optimizer is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.measure.traced_steps import STEP
from flatout.probe.contract import BACKWARD_ENDED
from flatout.record.kernel_trace import KernelTrace, read_trace
from tests.probe.recorded import run_probed

pytestmark = pytest.mark.slow

SCRIPT = """
    import os, struct, torch
    torch.manual_seed(0)
    weight = torch.nn.Linear(4, 1)
    data = torch.randn(8, 4)
    control = os.path.join(os.environ["FLATOUT_RUN"], "control")
    lbfgs = torch.optim.LBFGS(weight.parameters(), max_iter=4)
    sgd = torch.optim.SGD(weight.parameters(), lr=0.01)

    def loss():
        weight.zero_grad()
        value = weight(data).square().mean()
        value.backward()
        return value

    def step(kind):
        if kind == "manual":
            loss()
            with torch.no_grad():
                for p in weight.parameters():
                    p -= 0.01 * p.grad
        elif kind == "lbfgs":
            lbfgs.step(loss)
        elif kind == "many_nodes":
            sum(weight(data).square().mean() for _ in range(2_000)).backward()
            sgd.step()
        elif kind == "each_sample":
            for _ in range(40):
                loss()
            sgd.step()
        else:
            loss()
            sgd.step()

    import sys, time
    for number in range(12):
        if number == 3:
            with open(control, "r+b") as file:
                file.write(bytes([2]))
            time.sleep(0.05)
        step(sys.argv[1])
"""


@pytest.mark.parametrize("kind", ["manual", "lbfgs", "sgd"])
def test_a_trace_is_written_whatever_updates_the_weights(tmp_path: Path, kind: str) -> None:
    ran = run_probed(tmp_path, SCRIPT, kind)
    assert ran.code == 0, ran.err
    assert ran.faults() == []
    (path,) = tmp_path.rglob("trace-*.json.gz")
    trace = read_trace(path)
    assert isinstance(trace, KernelTrace)
    # What divides the trace into steps.
    assert trace.regions.name.count(BACKWARD_ENDED) == (4 if kind == "manual" else 0)


def test_a_folder_with_a_newline_in_its_name_gets_its_trace(tmp_path: Path) -> None:
    folder = tmp_path / "a\nb"
    folder.mkdir()
    ran = run_probed(folder, SCRIPT, "sgd")
    assert ran.code == 0 and ran.faults() == []
    (path,) = folder.rglob("trace-*.json.gz")
    assert isinstance(read_trace(path), KernelTrace)


def test_a_step_with_a_backward_pass_for_each_sample_is_traced_whole(tmp_path: Path) -> None:
    ran = run_probed(tmp_path, SCRIPT, "each_sample")
    assert ran.faults() == []
    trace = read_trace(next(tmp_path.rglob("trace-*.json.gz")))
    assert isinstance(trace, KernelTrace)
    assert sum(name.startswith(STEP) for name in trace.regions.name) >= 2


def test_of_steps_as_long_as_the_trace_one_whole_one_is_traced(tmp_path: Path) -> None:
    short = "import sys, time\n    sys.modules['_flatout_probe.trace'].LONGEST_NS = 1_000_000\n"
    script = SCRIPT.replace("import sys, time\n", short).replace("else:\n", "else:\n            time.sleep(0.01)\n")
    ran = run_probed(tmp_path, script, "sgd")
    assert ran.code == 0, ran.err
    assert ran.faults() == []
    trace = read_trace(next(tmp_path.rglob("trace-*.json.gz")))
    assert isinstance(trace, KernelTrace)
    assert sum(name.startswith(STEP) for name in trace.regions.name) == 2


def test_of_steps_of_very_many_operators_one_whole_one_is_traced(tmp_path: Path) -> None:
    ran = run_probed(tmp_path, SCRIPT, "many_nodes")
    assert ran.code == 0, ran.err
    assert ran.faults() == []
    trace = read_trace(next(tmp_path.rglob("trace-*.json.gz")))
    assert isinstance(trace, KernelTrace)
    assert sum(name.startswith(STEP) for name in trace.regions.name) == 2
