"""Whose memory of a GPU is whose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flatout.diagnose.findings import find
from flatout.measure.gpu_sharing import gpu_memory
from flatout.measure.measured_run import GpuShared, Usage
from tests.diagnose.views import healthy

GIB = 1 << 30
MAIN, WORKER, OTHER = 10, 11, 99


def sample(used: int, *held: tuple[int, int], **gpu: Any) -> dict[str, Any]:
    listed = [list(each) for each in held]
    return {
        "gpus": [{"index": 1, "memory_used": 70 * GIB}, {"index": 0, "memory_used": used, "processes": listed} | gpu],
        "processes": [{"pid": MAIN}, {"pid": WORKER}],
    }


def test_memory_of_processes_outside_the_command_is_not_the_trainings() -> None:
    samples = [
        sample(9 * GIB, (MAIN, 8 * GIB), (WORKER, GIB // 2)),
        sample(30 * GIB, (MAIN, 8 * GIB), (OTHER, 20 * GIB), (98, GIB)),
        sample(30 * GIB, (OTHER, 20 * GIB)),  # the training is not there yet
    ]
    found = gpu_memory(samples, 0, MAIN)
    assert found["gpu_memory_used_bytes"] == 9 * GIB
    assert found["gpu_shared"] == GpuShared(processes=2, memory_bytes=21 * GIB, share=0.5)


@pytest.mark.parametrize(
    "samples",
    [
        [sample(9 * GIB, (OTHER, 8 * GIB))],  # in a container the driver numbers processes in its own way
        [sample(9 * GIB, (MAIN, 8 * GIB))],
        [sample(9 * GIB, processes=None)],
        [{"gpus": [{"index": 0, "memory_used": 9 * GIB}], "processes": None}],  # an older record
    ],
)
def test_where_the_training_is_not_named_or_alone_all_of_it_counts(samples: list[dict[str, Any]]) -> None:
    assert gpu_memory(samples, 0, MAIN) == {"gpu_memory_used_bytes": 9 * GIB}
    assert gpu_memory(samples, None, MAIN) == {"gpu_memory_used_bytes": None}


def test_memory_that_others_hold_is_no_room_for_the_training() -> None:
    """20 of 80 GiB: idle where the training is alone, nearly full where others hold 60."""
    usage = replace(healthy().usage, gpu_memory_used_bytes=20 * GIB, gpu_memory_total_bytes=80 * GIB)
    for shared, id, of in (
        (None, "device_memory_idle", "80.0"),
        (GpuShared(1, 60 * GIB, 1.0), "device_memory_full", "20.0"),
    ):
        run = replace(healthy(uses_gpu=True), usage=replace(usage, gpu_shared=shared))
        (found,) = [one for one in find(run) if one.id.startswith("device_memory")]
        assert found.id == id and f"20.0 GiB of {of} GiB" in found.evidence[0].text
        assert ("that other processes leave" in found.evidence[0].text) is (shared is not None)


def test_a_gpu_that_others_use_most_of_the_time_is_a_finding() -> None:
    run = healthy(uses_gpu=True)

    def found(shared: GpuShared | None) -> list[str]:
        usage: Usage = replace(run.usage, gpu_shared=shared)
        return [one.evidence[0].text for one in find(replace(run, usage=usage)) if one.id == "gpu_shared"]

    assert found(None) == found(GpuShared(1, GIB, 0.1)) == []
    assert found(GpuShared(2, 20 * GIB, 0.6)) == [
        "in 60% of the samples, up to 2 processes outside the command, which hold 20.0 GiB of its memory"
    ]
    assert "hold" not in found(GpuShared(1, 0, 1.0))[0]
