"""Summaries of machine samples."""

from __future__ import annotations

from typing import Any

import pytest

from flatout.measure.usage import summarize

S = 1_000_000_000


def sample(t: int, **given: Any) -> dict[str, Any]:
    """Four cores, two of them busy; the training process uses half a core, each of two workers 0.6."""
    processes = [
        {"pid": 1, "rss": 900, "pss": 800, "cpu_s": 0.5 * t},
        {"pid": 2, "rss": 400, "pss": None if t % 2 else 100, "cpu_s": 0.6 * t},
        {"pid": 3, "rss": 400, "pss": None if t % 2 else 120, "cpu_s": 0.6 * t},
    ]
    usual = {
        "t": t * S,
        "cpu": [0.5] * 4,
        "memory": {"used": 10, "limit": 100, "available": 90 - t},
        "shm": {"used": t, "size": 64},
        "gpus": [{"index": 0, "util": 0.25}, {"index": 1, "util": 0.75}],
        "processes": processes,
    }
    return usual | given


def test_cores_are_told_apart_by_process() -> None:
    usage = summarize([sample(t) for t in range(5)], 0, 4 * S, 1, [2, 3], None)
    assert usage.main_cores == pytest.approx(0.5)
    # 2.0 busy, 1.7 of them the training's own.
    assert usage.other_cores == pytest.approx(0.3)
    assert usage.online_cores == 4


def test_only_samples_inside_the_window_count() -> None:
    samples = [sample(t) for t in range(3)] + [sample(3, memory={"available": 1}), sample(9, memory={"available": 0})]
    assert summarize(samples, 0, 3 * S, 1, [2, 3], None).available_bytes == 1


def test_the_memory_of_a_worker_is_its_pss_and_without_one_its_rss() -> None:
    usage = summarize([sample(t) for t in range(5)], 0, 4 * S, 1, [2, 3], None)
    assert (usage.worker_bytes, usage.worker_bytes_source) == (110, "PSS")
    usage = summarize([sample(1), sample(3)], 0, 4 * S, 1, [2, 3], None)
    assert (usage.worker_bytes, usage.worker_bytes_source) == (400, "RSS")


def test_the_gpu_of_the_training_is_read_and_no_other() -> None:
    samples = [sample(t) for t in range(3)]
    assert summarize(samples, 0, 2 * S, 1, [], 1).device_busy_share == pytest.approx(0.75)
    assert summarize(samples, 0, 2 * S, 1, [], None).device_busy_share is None
    assert summarize([sample(0, gpus=None)], 0, 2 * S, 1, [], 0).device_busy_share is None


def test_what_was_not_sampled_is_unknown_and_not_zero() -> None:
    usage = summarize([], 0, 10 * S, 1, [2], 0)
    assert set(vars(usage).values()) == {None}
    one = summarize([sample(1, cpu=None, memory=None, shm=None)], 0, 10 * S, 1, [2], None)
    assert (one.main_cores, one.other_cores, one.available_bytes, one.shm_free_bytes) == (None, None, None, None)


def test_waiting_for_a_core_is_a_share_of_the_time_between_its_samples() -> None:
    def sample(second: int, runqueue_s: float | None) -> dict[str, object]:
        process = {"pid": 7, "cpu_s": 0.0, "rss": 1, "pss": None}
        return {
            "t": second * 10**9,
            "processes": [process | ({} if runqueue_s is None else {"runqueue_s": runqueue_s})],
        }

    usage = summarize([sample(0, 1.0), sample(1, 1.3), sample(2, 1.8)], 0, 2 * 10**9, 7, [], None)
    assert usage.main_runqueue_share == pytest.approx(0.4)
    older = summarize([sample(0, None), sample(1, None)], 0, 10**9, 7, [], None)
    assert older.main_runqueue_share is None


def test_workers_that_start_are_no_growing_memory() -> None:
    def sample(second: int) -> dict[str, object]:
        processes = [{"pid": 7, "cpu_s": 0.0, "rss": 10**9, "pss": None}]
        if second >= 12:
            processes.append({"pid": 8, "cpu_s": 0.0, "rss": second * 10**8, "pss": None})
        return {"t": second * 10**9, "processes": processes}

    usage = summarize([sample(second) for second in range(20)], 0, 20 * 10**9, 7, [8], None)
    assert usage.memory_growth_bps == 0.0
