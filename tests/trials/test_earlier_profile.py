"""The latest profile of the same command: found, unless a file that the command names has changed since."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from flatout.record import load_run
from flatout.trials.earlier_profile import latest_profile, same_threads
from tests.record.synthetic import RunBuilder


def test_the_latest_profile_of_the_same_command_and_files_is_found(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    command, runs = ["python", str(script)], tmp_path / "runs"
    assert latest_profile(command, runs) is None
    for name in ("a", "b"):
        run = RunBuilder(runs, name)
        run.process().pause(1.0)
        run.write(command=command, started="2026-11-20T12:00:00Z")
    began_s = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()
    os.utime(script, (began_s - 5, began_s - 5))
    found = latest_profile(command, runs)
    assert found is not None and found.path == runs / "b"
    assert latest_profile([*command, "--epochs", "2"], runs) is None
    os.utime(script, (began_s + 5, began_s + 5))
    assert latest_profile(command, runs) is None
    os.utime(script, (began_s - 5, began_s - 5))
    (runs / "b" / "run.json").write_text("{")
    found = latest_profile(command, runs)
    assert found is not None and found.path == runs / "a"


def test_a_profile_with_other_threads_is_of_another_training(tmp_path: Path) -> None:
    runs = []
    for name, threads in (("a", 2), ("b", 1), ("c", 2)):
        run = RunBuilder(tmp_path, name)
        process = run.process(threads=threads)
        for _ in range(5):
            process.step()
        run.write()
        runs.append(load_run(tmp_path / name))
    first, other, same = runs
    assert same_threads(first, same) and not same_threads(first, other)
