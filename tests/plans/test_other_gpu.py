"""Recorded steps on another GPU, from hand-made records of GPU runs, and the catalogue of parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from flatout import cli
from flatout.errors import UsageError
from flatout.measure.build import build_view
from flatout.measure.kernel_work import KernelWork
from flatout.plans.gpu_parts import GENERATIONS, chosen_part, find_part, gpu_parts
from flatout.plans.kernel_scaling import Precision, time_factor
from flatout.plans.other_gpu import OtherGpu, on_other_gpu
from flatout.record import load_run
from tests.measure.kernel_traces import UNTRACED_NS, Trace
from tests.record.synthetic import RunBuilder

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/schema/plan.schema.json").read_text("utf-8"))
SIDE = 4096
HALF = {"Input Dims": [[SIDE, SIDE], [SIDE, SIDE]], "Input type": ["c10::Half", "c10::Half"]}


def kernels(matrix_s: float, memory_s: float, host_s: float) -> Trace:
    """Three steps of a product of half-precision matrices and an addition, each in the kernel that it launches."""
    trace = Trace()
    for step in range(3):
        for place, (name, seconds) in enumerate((("aten::mm", matrix_s), ("aten::add_", memory_s))):
            id = 10 * step + place + 1
            trace.add("cpu_op", name, trace.now, 10.0, **{"External id": id, **HALF})
            trace.add("kernel", f"kernel_{place}", trace.now + 5.0, 1e6 * seconds, **{"External id": id})
            trace.now += 10.0 + 1e6 * seconds
        trace.now += 1e6 * host_s
        trace.update()
    trace.reference()
    return trace


def recorded(
    folder: Path,
    *,
    matrix_s: float = 0.006,
    memory_s: float = 0.003,
    host_s: float = 0.001,
    wait_s: float = 0.0,
    gpu: str | None = "NVIDIA A10",
    used: int = 10 << 30,
    mig: bool = False,
) -> Path:
    """A run of 60 steps on a GPU, or on the CPU; one worker's fetch takes as long as a step where there is a wait."""
    run = RunBuilder(folder)
    run.machine["gpus"] = [{"index": 0, "name": gpu, "memory_bytes": 24 << 30, "mig": mig}] if gpu else []
    count = 1 if gpu else 0
    process = run.process(device_count=count, reference={"operator_ns": UNTRACED_NS, "float64_factor": 2.0})
    loader = process.loader(num_workers=1, batch_size=4)
    worker = run.worker(process, 0)
    process.iterate(loader, workers=[worker])
    computed_s = matrix_s + memory_s + host_s
    for step in range(60):
        begin_s = process.now_s
        process.step(
            loader, wait_s=wait_s, h2d_s=1e-5, forward_s=0.4 * computed_s, backward_s=0.6 * computed_s, worker=0
        )
        if wait_s:
            worker.at(begin_s)
            worker.fetch(batch=step, samples=4, cpu_s=process.now_s - begin_s, blocked_s=0.0)
        run.system.append(
            {"t": process.start_ns + round(process.now_s * 1e9), "gpus": [{"index": 0, "memory_used": used}]}
        )
    process.end_pass(loader)
    path = run.write()
    if gpu:
        kernels(matrix_s, memory_s, host_s).write(path / f"trace-{process.pid}-{process.start_ns}.json.gz")
    return path


def predicted(path: Path, name: str) -> OtherGpu:
    view = build_view(load_run(path))
    assert view is not None
    return on_other_gpu(view, name)


def seconds(other: OtherGpu) -> dict[str, tuple[float, float]]:
    return {one.kind: (one.now_s, one.then_s) for one in other.classes}


def test_each_class_of_work_scales_by_what_bounds_it(tmp_path: Path) -> None:
    """Of 10 ms, 6 in products at 312 of 125 TFLOP/s, 3 in memory at 2039 of 600 GB/s, 1 on the host."""
    found = predicted(recorded(tmp_path), "a100-sxm-80gb")
    classes = seconds(found)
    assert classes["matrix"] == (pytest.approx(0.006, rel=0.05), pytest.approx(0.006 * 125 / 312, rel=0.05))
    assert classes["memory"] == (pytest.approx(0.003, rel=0.05), pytest.approx(0.003 * 600 / 2039, rel=0.05))
    assert classes["host"] == (pytest.approx(0.001, rel=0.1), pytest.approx(0.001, rel=0.1))
    assert found.gain.factor == pytest.approx(0.010 / (0.0024 + 0.00088 + 0.001), rel=0.05)
    assert found.gain.low < found.gain.factor < found.gain.high
    assert sum(then_s for _, then_s in classes.values()) == pytest.approx(found.step_s / found.gain.factor, rel=0.02)


def test_a_run_that_waits_for_input_gets_no_faster_and_one_on_the_same_part_stays(tmp_path: Path) -> None:
    waiting = recorded(tmp_path / "waiting", wait_s=0.010)
    assert predicted(waiting, "H100-SXM").gain.factor == pytest.approx(1.0, abs=0.02)
    assert predicted(waiting, "H100-SXM").gain.high < 1.1
    assert predicted(recorded(tmp_path / "computing"), "A10").gain.factor == pytest.approx(1.0)


def test_a_slower_part_takes_longer_and_less_memory_does_not_fit(tmp_path: Path) -> None:
    found = predicted(recorded(tmp_path, used=20 << 30), "T4")
    assert found.gain.high < 1.0 and found.memory.fits is False
    assert predicted(recorded(tmp_path / "b", used=15 << 30), "T4").memory.fits is None
    assert predicted(recorded(tmp_path / "c"), "T4").memory.fits is True


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"gpu": None}, "recorded on a CPU"),
        ({"gpu": "NVIDIA Unheard 1"}, "recorded on NVIDIA Unheard 1, of which no figures are known"),
        ({"mig": True}, "MIG"),
    ],
)
def test_runs_that_say_nothing_of_a_whole_known_gpu_are_refused(
    tmp_path: Path, changed: dict[str, Any], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recorded(tmp_path, **changed)
    assert cli.main(["plan", "--deadline", "1m", "--epochs", "3", "--gpu", "T4", str(path)]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


@pytest.mark.parametrize(("name", "named"), [("H100", "H100-PCIe, H100-SXM"), ("RTX-4091", "RTX-4090"), ("", "known")])
def test_an_unknown_or_ambiguous_part_is_refused_with_the_nearest(name: str, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        chosen_part(name)


def test_the_command_prints_80_columns_and_what_its_schema_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["plan", "--deadline", "1m", "--epochs", "30", "--gpu", "NVIDIA H100 80GB HBM3"]
    assert cli.main([*words, str(recorded(tmp_path / "waiting", wait_s=1e-3))]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert "flatout never measured" in text and "Predicted on the H100-SXM" in text
    assert cli.main([*words, "--json", str(recorded(tmp_path / "computing"))]) == 0
    made = json.loads(capsys.readouterr().out)
    jsonschema.validate(made, SCHEMA)
    assert made["other_gpu"]["kind"] == "prediction"
    assert made["other_gpu"]["scenarios"][0]["expected_s"] < made["scenarios"][0]["expected_s"]


def test_the_names_of_the_driver_and_of_users_find_the_part() -> None:
    assert find_part("NVIDIA H100 80GB HBM3") is find_part("h100 sxm") is chosen_part("H100-SXM")
    assert find_part("Tesla T4") is find_part("t4") is chosen_part("T4")
    assert find_part("NVIDIA A10G") is None


def test_each_figure_has_a_source_and_a_plausible_size() -> None:
    parts = gpu_parts()
    assert 20 <= len(parts) <= 60 and len({name for part in parts for name in part.nvml}) == sum(
        len(part.nvml) for part in parts
    )
    for part in parts:
        assert part.source and part.generation in GENERATIONS
        assert 1e11 < part.bandwidth < 1e13 and 1e10 < part.memory_bytes < 1e12
        peaks = [part.peaks[one] for one in ("fp32", "tf32", "fp16", "fp8") if one in part.peaks]
        assert peaks == sorted(peaks)


def test_a_precision_that_the_part_lacks_is_refused() -> None:
    work = KernelWork("matrix", "bfloat16", 1.0, 1.0, 1e12, 1e6)
    a10, t4 = chosen_part("A10"), chosen_part("T4")
    with pytest.raises(UsageError, match="T4 computes no products in bfloat16"):
        time_factor(work, a10, t4, Precision())
