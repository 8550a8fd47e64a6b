"""Risks and opportunities beside the causes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from flatout.diagnose.causes import CAUSES
from flatout.diagnose.findings import FINDINGS, find
from flatout.diagnose.ranking import judge
from flatout.measure.build import _gpu_index
from flatout.measure.measured_run import MeasuredRun, Process, Usage
from flatout.measure.metrics import Metrics
from flatout.measure.usage import summarize
from flatout.predict.context import Context
from tests.diagnose.views import COMPUTE, healthy, small_operators

GIB = 1 << 30


def ids(view: MeasuredRun) -> list[str]:
    return [finding.id for finding in find(view)]


def long(usage: Usage, **more: object) -> MeasuredRun:
    """A healthy run of 200 s."""
    view = healthy(busy={name: 100 * seconds for name, seconds in COMPUTE.items()}, **more)
    return replace(view, usage=usage)


def test_a_healthy_run_has_none() -> None:
    assert find(healthy()) == ()


def test_weights_in_float64_are_told_where_no_trace_shows_their_cost() -> None:
    view = healthy(process={"param_dtype": "float64"})
    (found,) = find(replace(view, operators="the kernel trace is too large to be read"))
    assert found.id == "double_precision" and "too large to be read" in found.evidence[0].text
    assert ids(replace(view, operators=small_operators(0.0))) == []


def test_memory_that_grows_is_told_with_the_time_that_is_left() -> None:
    view = long(Usage(memory_growth_bps=10e6, available_bytes=6 * GIB))
    (found,) = find(view)
    assert found.id == "memory_growth" and found.kind == "risk"
    assert "10 min 44 s" in found.evidence[0].text and "a minute" in found.evidence[0].text
    assert ids(long(Usage(memory_growth_bps=10e6, available_bytes=6000 * GIB))) == []  # lasts for a week
    assert ids(long(Usage(memory_growth_bps=1e5, available_bytes=GIB))) == []  # no more than caches wander
    steps = replace(view.ledger.steps, count=8)  # of such long ones memory goes up and down within each
    assert ids(replace(view, ledger=replace(view.ledger, steps=steps))) == []


def test_the_slope_is_of_the_second_half_and_of_processes_that_last() -> None:
    def sample(second: int) -> dict[str, object]:
        rss = 1e9 + (5e8 * second if second < 10 else 5e9) + 2e6 * second
        workers = [{"pid": 2, "cpu_s": 0.0, "rss": 7e9, "pss": None}] if second < 18 else []
        return {
            "t": second * 1_000_000_000,
            "processes": [{"pid": 1, "cpu_s": 0.0, "rss": rss, "pss": None}, *workers],
        }

    usage = summarize([sample(n) for n in range(21)], 0, 20_000_000_000, 1, [2], None)
    assert usage.memory_growth_bps == pytest.approx(2e6)


@pytest.mark.parametrize(("used", "id"), [(77, "device_memory_full"), (30, "device_memory_idle")])
def test_the_memory_of_the_gpu_is_full_or_idle(used: int, id: str) -> None:
    usage = Usage(gpu_memory_used_bytes=used * GIB, gpu_memory_total_bytes=80 * GIB)
    assert ids(replace(healthy(uses_gpu=True), usage=usage)) == [id]
    assert ids(replace(healthy(), usage=usage)) == []


def test_memory_that_pytorch_only_holds_is_no_full_gpu() -> None:
    usage = Usage(gpu_memory_used_bytes=78 * GIB, gpu_memory_total_bytes=80 * GIB)
    holding = healthy(uses_gpu=True, process={"memory_allocated": 50 * GIB, "memory_reserved": 76 * GIB})
    assert ids(replace(holding, usage=usage)) == []
    full = healthy(uses_gpu=True, process={"memory_allocated": 75 * GIB, "memory_reserved": 76 * GIB})
    (found,) = find(replace(full, usage=usage))
    assert found.id == "device_memory_full"
    assert found.evidence[0].text == (
        "at the most 78.0 GiB of 80.0 GiB: tensors took 75.0 GiB, and PyTorch held 76.0 GiB for them; "
        "without what it only held, 96%"
    )


def test_a_version_that_is_known_to_be_slow_is_named() -> None:
    view = healthy(uses_gpu=True, process={"torch": "2.9.0+cu128"})
    (found,) = find(view)
    assert found.id == "bad_version" and "torch 2.10" in found.how
    assert ids(healthy(uses_gpu=True, process={"torch": "2.10.0"})) == []
    assert ids(healthy(process={"torch": "2.9.0"})) == []


def test_findings_are_no_causes() -> None:
    view = long(Usage(memory_growth_bps=10e6, available_bytes=6 * GIB))
    assert [cause.id for cause in judge(Context.of(view))[0]] == ["compute_bound"]
    assert [finding.id for finding in find(view)] == [id for id in FINDINGS if id == "memory_growth"]
    assert not FINDINGS.keys() & {cause.id for cause in CAUSES}


def on_gpu(**process: object) -> MeasuredRun:
    given = {"param_dtype": "float32", "capability": 8.6, "tf32": True, "compiled": True, **process}
    return healthy(uses_gpu=True, process=given)


@pytest.mark.parametrize(
    ("process", "found"),
    [
        ({}, ["mixed_precision"]),
        ({"autocast": "bfloat16"}, []),
        ({"param_dtype": "bfloat16"}, []),
        ({"capability": 6.1}, []),
        ({"capability": None}, []),
        ({"tf32": False}, ["mixed_precision", "tf32"]),
        ({"tf32": False, "capability": 7.5}, ["mixed_precision"]),
        ({"autocast": "float16", "tf32": False}, []),
        ({"autocast": "float16", "convolutions": 3, "channels_last": False}, ["memory_format"]),
        ({"autocast": "float16", "convolutions": 3, "channels_last": True}, []),
        ({"tf32": False, "convolutions": 2, "channels_last": False}, ["mixed_precision", "tf32"]),
        ({"compiled": False, "autocast": "float16"}, ["compile"]),
    ],
)
def test_settings_that_leave_the_gpus_tensor_cores_unused(process: dict[str, object], found: list[str]) -> None:
    assert ids(on_gpu(**process)) == found
    assert ids(replace(on_gpu(**process), uses_gpu=False)) == []


def test_the_scaler_is_named_where_only_float16_is_fast() -> None:
    (old,) = find(on_gpu(capability=7.5))
    (new,) = find(on_gpu())
    assert "float16" in old.how and "GradScaler" in old.how
    assert "bfloat16" in new.how and "GradScaler" not in new.how


CASE_D = Metrics(train_loss=4.24, val_loss=4.945, val_accuracy=0.012)


def test_a_training_that_learns_and_validates_at_chance_is_told() -> None:
    view = replace(healthy(process={"outputs": 100}), metrics=CASE_D)
    (found,) = find(view)
    assert found.id == "metric_at_chance" and found.kind == "risk"
    assert "4.24" in found.evidence[0].text and "guessing gives 1.0%" in found.evidence[0].text
    for changed in ({"val_accuracy": 0.05}, {"val_loss": 4.4}, {"train_loss": 4.5}, {"val_accuracy": None}):
        assert find(replace(view, metrics=replace(CASE_D, **changed))) == ()
    assert find(replace(view, process=replace(view.process, outputs=None))) == ()


def test_the_gpu_is_found_by_its_own_name_before_its_rank() -> None:
    run = machine_with_gpus()
    assert _gpu_index(run, training({"device_uuid": "GPU-b", "local_rank": 0}), Process(device_count=1)) == 1
    assert _gpu_index(run, training({"device_uuid": "GPU-x", "local_rank": 0}), Process(device_count=1)) == 0
    assert _gpu_index(run, training({"device_uuid": None, "local_rank": None}), Process(device_count=1)) is None


def machine_with_gpus() -> Any:
    return SimpleNamespace(machine={"gpus": [{"index": 0, "uuid": "GPU-a"}, {"index": 1, "uuid": "GPU-b"}]})


def training(info: dict[str, object]) -> Any:
    return SimpleNamespace(process=SimpleNamespace(info=info))
