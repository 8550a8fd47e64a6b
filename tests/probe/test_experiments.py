"""Steps after the window: they measure what was switched on, change no result, and leave everything as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from flatout.measure.experiments import read_experiments
from flatout.measure.gradients import (
    DiscardedGradients,
    UnusedGradients,
    read_discarded_gradients,
    read_unused_gradients,
)
from flatout.measure.padding import Padding, read_padding
from flatout.measure.repeated_work import RepeatedWork, read_repeated_work
from flatout.probe import events
from flatout.record.run import ProcessRecord
from tests.probe.recorded import new_run_folder, probed_env, read_back, run_bare, run_probed

SCRIPT = (Path(__file__).parent / "scripts" / "experimenting.py").read_text()
ALL = "anomaly,settrace,setprofile,tracemalloc,deterministic,distributions,hooks,profiler"

pytestmark = pytest.mark.slow


def tried(process: ProcessRecord) -> Counter[str]:
    blocks = process.of_kinds(events.EXPERIMENT)
    return Counter(process.names.text(int(id)) if id else "" for id in blocks["arg"])


def trained(folder: Path, *arguments: str) -> tuple[dict[str, Any], ProcessRecord]:
    ran = run_probed(folder, SCRIPT, *arguments)
    assert ran.code == 0, ran.err
    assert ran.faults() == []
    said = json.loads(ran.out.splitlines()[-1])
    assert said["over"]
    return said, ran.main


@pytest.mark.parametrize("what", [ALL, f"loader,{ALL}"])
def test_everything_is_as_it_was_and_the_losses_are_the_same(tmp_path: Path, what: str) -> None:
    said, process = trained(tmp_path, what, "20")
    bare = run_bare(tmp_path, SCRIPT, what, "20")
    assert bare.code == 0, bare.err
    plain = json.loads(bare.out.splitlines()[-1])
    assert said["losses"] == plain["losses"]
    assert said["state"] == plain["state"]
    noted = process.info["debugging"]
    names = {"anomaly_mode", "profiler", "trace_function", "profile_function", "tracemalloc", "deterministic"}
    assert names | {"validate_args"} <= noted.keys()
    assert noted["tracemalloc"].endswith(f"script.py:{line('    tracemalloc.start(2)')}")


def line(text: str) -> int:
    return SCRIPT.splitlines().index(text) + 1


@pytest.mark.parametrize(("what", "name"), [("anomaly", "anomaly_mode"), ("loader,settrace", "trace_function")])
def test_blocks_without_a_setting_alternate_with_unchanged_ones(tmp_path: Path, what: str, name: str) -> None:
    _, process = trained(tmp_path, what, "20")
    blocks = tried(process)
    assert blocks[name] >= 2 and blocks[""] > blocks[name]  # 2: it was far slower in both
    assert name in read_experiments(process).tried


def test_steps_of_the_kind_that_takes_most_of_the_time_are_waited_for(tmp_path: Path) -> None:
    """It is asked in the first of 600 short steps, behind 30 that take a hundred times as long."""
    _, process = trained(tmp_path, "kinds", "40")
    share, most, _ = process.info["usual_steps"]["changed"]
    assert share >= 0.5 * most and most > 0.5
    assert tried(process)[""]


def test_hooks_and_collections_are_timed(tmp_path: Path) -> None:
    _, process = trained(tmp_path, "hooks,gc", "20")
    found = read_experiments(process)
    assert [hook.function.rpartition(".")[2] for hook in found.hooks] == ["keep"]
    assert found.hooks[0].line == line("def keep(module, args, output):")
    assert found.hooks_share is not None and 0 < found.hooks_share < 1
    assert found.collections == pytest.approx(1.0, abs=0.5)


def test_collections_are_timed_where_steps_are_too_long_to_change_anything(tmp_path: Path) -> None:
    _, process = trained(tmp_path, "gc,slow", "2")
    found = read_experiments(process)
    assert found.skipped is not None and "too long to try more" in found.skipped and not found.tried
    assert found.collections == pytest.approx(1.0, abs=0.5)
    assert found.collector_share is not None and found.collector_share > 0
    assert isinstance(read_repeated_work(process), (str, RepeatedWork))  # or why none was looked at


@pytest.mark.usefixtures("without_coverage")
def test_where_nothing_is_on_only_threads_are_tried(tmp_path: Path) -> None:
    _, process = trained(tmp_path, "loader", "20")
    assert all(name == "" or name.startswith("threads=") for name in tried(process))
    assert not process.info["debugging"]
    assert not read_experiments(process).hooks
    assert read_padding(process) is None


def test_padding_of_a_trained_batch_is_seen_and_the_losses_are_the_same(tmp_path: Path) -> None:
    said, process = trained(tmp_path, "padded", "20")
    found = read_padding(process)
    assert isinstance(found, Padding)
    assert (found.tensor, found.evidence, found.fixed) == ("0", "mask", True)
    assert set(found.padded) == {12} and {len(rows) for rows in found.rows} == {16}
    plain = json.loads(run_bare(tmp_path, SCRIPT, "padded", "20").out.splitlines()[-1])
    assert said["losses"] == plain["losses"]


def unused(process: ProcessRecord) -> UnusedGradients | str | None:
    return read_unused_gradients(process, read_experiments(process))


@pytest.mark.parametrize("what", ["unfrozen", "loader,unfrozen,norms"])
def test_gradients_that_no_optimizer_uses_are_left_out_for_a_while(tmp_path: Path, what: str) -> None:
    said, process = trained(tmp_path, what, "20")
    found = unused(process)
    assert isinstance(found, UnusedGradients)
    assert (found.elements, found.of) == (72, 72 + 4 * 72 + 9) and found.modules == ("Linear",)
    assert tried(process)["used_gradients"]
    bare = run_bare(tmp_path, SCRIPT, what, "20")
    plain = json.loads(bare.out.splitlines()[-1])
    assert (said["losses"], said["state"]) == (plain["losses"], plain["state"])


@pytest.mark.parametrize(
    ("what", "because"),
    [
        ("clipped", "gradients are clipped by their norm"),
        ("attacked", "gradients of other tensors than parameters"),
        ("hooks", "hooks may need the gradients"),
    ],
)
def test_gradients_that_something_else_may_use_are_computed(tmp_path: Path, what: str, because: str) -> None:
    said, process = trained(tmp_path, f"unfrozen,{what}", "20")
    assert "used_gradients" not in tried(process)
    found = unused(process)
    assert isinstance(found, UnusedGradients) and because in found.not_tried and found.tried is None
    plain = json.loads(run_bare(tmp_path, SCRIPT, f"unfrozen,{what}", "20").out.splitlines()[-1])
    assert said["losses"] == plain["losses"]


@pytest.mark.parametrize("what", ["none", "unfrozen,by hand", "unfrozen,looked at"])
def test_gradients_that_are_used_are_not_called_unused(tmp_path: Path, what: str) -> None:
    _, process = trained(tmp_path, what, "20")
    assert unused(process) is None and "used_gradients" not in tried(process)


@pytest.mark.parametrize("what", ["discarded", "loader,seldom discarded"])
def test_gradients_that_are_set_to_zero_unused_are_left_out_for_a_while(tmp_path: Path, what: str) -> None:
    said, process = trained(tmp_path, what, "20")
    found = read_discarded_gradients(process, read_experiments(process))
    assert isinstance(found, DiscardedGradients) and [line.modules for line in found.lines] == [("Sequential",)]
    assert found.lines[0].elements == 4 * 72 + 9 and found.lines[0].of == 4 * 72 + 9 + 16 * 8
    assert tried(process)["kept_gradients"] >= 2 and found.tried is not None  # 2: it was far slower in both
    plain = json.loads(run_bare(tmp_path, SCRIPT, what, "20").out.splitlines()[-1])
    assert (said["losses"], said["state"]) == (plain["losses"], plain["state"])


def test_ranks_are_left_in_step(tmp_path: Path) -> None:
    ran = run_probed(tmp_path, SCRIPT, "anomaly", "20", env={"WORLD_SIZE": "2", "RANK": "0"})
    assert ran.code == 0 and ran.faults() == [], ran.err
    assert not tried(ran.main)
    assert ran.main.info["experiments_skipped"] == "2 ranks have to stay in step"
    assert "anomaly_mode" in ran.main.info["debugging"]


def test_a_training_under_coverage_is_measured_without_it(tmp_path: Path) -> None:
    pytest.importorskip("coverage")
    (tmp_path / "script.py").write_text(SCRIPT)
    run = new_run_folder(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "coverage", "run", "--data-file", str(tmp_path / "data"), "script.py", "none", "20"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", **probed_env(run, {})},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    process = max(read_back(run).processes, key=lambda process: len(process.of_kinds(events.BACKWARD)))
    assert "fault" not in process.info
    assert {"trace_function", "monitoring_tool"} & set(tried(process))
