"""Results of a few lines: memory, ceilings, a mount, staging's moving line and a cluster's summary."""

from __future__ import annotations

import json
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest

from flatout.ceilings.measuring import Ceilings
from flatout.predict.step_memory import Line, StepMemory, Tracked
from flatout.report import ceilings, memory
from flatout.report.staging import cluster_lines
from flatout.report.staging_progress import state_line
from flatout.stage.cluster.spread import ClusterSummary
from flatout.storage.mounting import Mounted

GIB = 1 << 30


def test_memory_is_told_by_batch_size_with_the_largest_that_fits() -> None:
    line = StepMemory(Line(GIB, GIB / 8), Line(0, GIB / 4), least_bytes=0.0, measured=True)
    steps = (Tracked(8, {"weights": GIB, "activations": GIB}), Tracked(16, {"weights": GIB, "activations": 2 * GIB}))
    text = memory.lines(line, steps, {"24GiB": 24 * GIB})
    assert text[0] == "memory(b) = 1.0 GiB + 128 MiB x b"
    assert text[1].startswith("and at least 0 B + 256 MiB x b") and all(len(each) <= 80 for each in text)
    assert f"largest batch {line.largest(24 * GIB):,}" in "\n".join(text)
    found = json.loads(json.dumps(memory.to_dict(line, steps, {"24GiB": 24 * GIB})))
    assert [step["batch_size"] for step in found["steps"]] == [8, 16]
    assert found["largest"] == {"24GiB": line.largest(24 * GIB)} and found["steps"][0]["activations"] == GIB


def test_a_largest_batch_far_beyond_the_tracked_ones_is_called_an_upper_limit() -> None:
    line = StepMemory(Line(3 << 20, 2 << 10), None, least_bytes=0.0, measured=True)
    steps = (Tracked(16, {"gradient": 3 << 20}), Tracked(32, {"gradient": 3 << 20}))
    text = " ".join(memory.lines(line, steps, {"16GB": 16 * 10**9}))
    assert "times beyond the tracked ones" in text and "upper limits" in text


def test_ceilings_have_the_shares_of_a_sample_in_their_json() -> None:
    found = ceilings.to_dict(Ceilings(train_sps=100.0, device_sps=400.0, loader_cold_sps=100.0, loader_warm_sps=200.0))
    assert found["headroom"] == 4.0 and sum(found["parts"].values()) == pytest.approx(1.0)


def test_a_mount_is_plain_values_in_its_json() -> None:
    mounted = Mounted(
        source="s3://b", folder="/mnt", tool="rclone", key=None, open_s=0.5, refused=("mount-s3 is not installed",)
    )
    assert json.loads(json.dumps(mounted.as_json()))["refused"] == ["mount-s3 is not installed"]


def progress(**values: Any) -> Any:
    plain = {
        "copied": 500, "kept": 0, "listed": 1000, "listing_done": True, "copied_bytes": 50 << 20, "kept_bytes": 0,
        "listed_bytes": 100 << 20, "duration_s": 10.0, "concurrency": 32, "n_failed": 0,
    }  # fmt: skip
    return SimpleNamespace(**{**plain, **values})


def test_the_moving_line_says_what_is_done_how_fast_and_how_long_it_takes() -> None:
    assert state_line(progress()) == "500 of 1,000 files  50 files/s  5.0 MiB/s  32 at once  10.0 s left"
    assert "1,000+ files" in state_line(progress(listing_done=False)) and "left" not in state_line(
        progress(listing_done=False)
    )
    assert "3 failed" in state_line(progress(n_failed=3))


def test_a_clusters_summary_has_a_line_a_host() -> None:
    counted = {"total_files": 50, "total_bytes": 5 << 20, "copied": 30, "taken": 20, "changed": 2, "n_dropped": 1}
    hosts = tuple({"host": f"{number}: 10.0.0.1", **counted} for number in (1, 2))
    counts: dict[str, Any] = dict.fromkeys((field.name for field in fields(ClusterSummary)), 0)
    counts |= {"source": "s3://b", "replicate": "shard", "hosts": hosts, "lost": (), "duration_s": 4.0}
    summary = ClusterSummary(**{**counts, "listed": 100, "listed_bytes": 10 << 20})
    text = cluster_lines(summary).splitlines()
    assert text[0].startswith("staged 100 files, 10") and "each of 2 hosts has its share of them" in " ".join(text)
    assert sum("50 files, 5.0 MiB; 30 from the source, 20 from other hosts; 2 scaled" in line for line in text) == 2
