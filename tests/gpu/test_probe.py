"""The probe beside a GPU, in a process of its own: what it records, and what settings do there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from flatout.measure.last_steps import read_last_steps
from flatout.probe import events
from flatout.record import load_run
from flatout.record.run import ProcessRecord
from flatout.runner.command import injecting_environment

ROOT = Path(__file__).parents[2]
ON_FAKE_GPU = ROOT / "tests" / "gpu" / "run_on_fake_gpu.py"
SCRIPTS = ROOT / "benchmarks" / "gpu" / "scripts"
SMALL = ("--steps", "12", "--batch-size", "4", "--width", "4", "--size", "16")


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    fake = {"FLATOUT_DEVICE_HOOKS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env={**os.environ, **fake, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def recorded(folder: Path, script: str, *arguments: str, **environment: str) -> ProcessRecord:
    command = [sys.executable, "-m", "flatout", "profile", "--full", "--quiet", "--runs-dir", str(folder), "--"]
    run([*command, sys.executable, str(ON_FAKE_GPU), str(SCRIPTS / script), *arguments], **environment)
    (path,) = (entry for entry in folder.iterdir() if (entry / "run.json").is_file())
    (process,) = (one for one in load_run(path).processes if len(one.events))
    return process


def count(process: ProcessRecord) -> Counter[int]:
    return Counter(process.events["kind"].tolist())


@pytest.mark.slow
def test_phases_get_the_devices_time_of_their_kernels(tmp_path: Path) -> None:
    process = recorded(tmp_path, "known_kernels.py", "4", "8", "2", "0", "20")
    spans = process.events[process.events["kind"] == events.DEVICE_SPAN]
    for phase, least_ms in ((events.FORWARD, 4), (events.BACKWARD, 8), (events.OPTIMIZER, 2)):
        of_phase = spans[spans["arg"] == phase]
        assert len(of_phase) > 10
        assert of_phase["duration"].min() / 1e6 > 0.95 * least_ms
    assert process.info["device_count"] == 1
    assert process.info["device_uuid"] == "GPU-0b7f2a5e-0000-4000-8000-00000000f1a7"
    assert process.info["not_patched"] == {}
    assert 0 < process.info["memory_allocated"] <= process.info["memory_reserved"]


@pytest.mark.usefixtures("without_coverage")
@pytest.mark.slow
def test_the_last_steps_wait_for_their_kernels_and_note_their_memory(tmp_path: Path) -> None:
    # 20 ms of kernels a step, which the host does not wait for.
    arguments = (str(SCRIPTS / "known_kernels.py"), "4", "14", "2", "0", "2000")
    command = [sys.executable, "-m", "flatout", "profile", "--steps", "15", "--no-trace", "--quiet", "--runs-dir"]
    run([*command, str(tmp_path), "--", sys.executable, str(ON_FAKE_GPU), *arguments])
    (path,) = (entry for entry in tmp_path.iterdir() if (entry / "run.json").is_file())
    (process,) = (one for one in load_run(path).processes if len(one.events))
    assert "fault" not in process.info
    found = read_last_steps(process)
    assert found.replayed is not None and found.replayed.low_s >= 0.015, found.skipped
    assert set(process.info["last_steps"]["peak_bytes"]) >= {"replayed", "single"}


@pytest.mark.slow
def test_reads_and_copies_are_recorded_and_losses_are_read_late(tmp_path: Path) -> None:
    process = recorded(tmp_path, "planted.py", "sync_in_the_loop", *SMALL, "--workers", "0", FLATOUT_LOSSES="1")
    seen = count(process)
    assert seen[events.BLOCKING_READ] >= 12 * 5
    copies = process.events[process.events["kind"] == events.H2D]
    assert len(copies) >= 2 * 12
    assert 1 in copies["b"].tolist()  # pinned, and not waited for
    losses = [value for name, value in process.metrics() if name == "flatout/loss"]
    assert len(losses) >= 8 and all(value > 0 for value in losses)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"tf32": True, "cudnn_benchmark": True}, {"precision": "high", "benchmark": True}),
        ({"pin_memory": True, "non_blocking": True, "lazy_scalars": True}, {"pinned": True, "scalar": "LazyScalar"}),
        (
            {"autocast": "fp16", "optimizer_form": "fused", "channels_last": True},
            {"fused": True, "channels_last": True},
        ),
    ],
    ids=["libraries", "copies and reads", "precision and optimizer"],
)
def test_settings_take_effect_on_a_gpu_and_the_losses_stay(settings: dict[str, Any], expected: dict[str, Any]) -> None:
    command = [sys.executable, str(ON_FAKE_GPU), str(SCRIPTS / "ordinary.py"), *SMALL]
    plain, changed = (
        run(command, **{**injecting_environment(), "FLATOUT_SETTINGS": json.dumps(wanted)}) for wanted in ({}, settings)
    )
    lines = [line for line in changed.stderr.splitlines() if line.startswith("flatout: ")]
    assert len(lines) == 1 and set(settings) == {
        pair.split("=")[0] for pair in lines[0][len("flatout: set ") :].split(", ")
    }
    before, after = (json.loads(done.stdout.rpartition("RESULT ")[2]) for done in (plain, changed))
    assert {name: after[name] for name in expected} == expected
    assert after["losses"] == pytest.approx(before["losses"], rel=0.02)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sections_of_the_gpu_check_run_on_the_fake_gpu_and_resumes(tmp_path: Path) -> None:
    journal = tmp_path / "journal.json"
    check = [sys.executable, str(ROOT / "benchmarks" / "gpu" / "check.py"), "--dry-run", "--journal", str(journal)]
    first = run([*check, "--sections", "memory", "decoders", "sharing", "--minutes", "9"])
    rows = json.loads(journal.read_text())["rows"]
    assert {name for name, found in rows.items() if all(row["failed"] is None for row in found.values())} == {
        "memory", "decoders", "sharing",
    }  # fmt: skip
    assert "gpu-check: decoders: nvjpeg" in first.stderr
    again = run([*check, "--sections", "decoders", "memory"])
    assert "gpu-check: " not in again.stderr
