"""``flatout fix`` on a training that waits for one worker: faster, proved, and nothing of the user's touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flatout.machine.tree import descendants
from tests.end_to_end.profiling import FLATOUT, ONE_WORKER, script

pytestmark = [pytest.mark.serial, pytest.mark.timeout(900)]


def command(folder: Path, *options: str) -> list[str]:
    return [*FLATOUT, "fix", *options, "--", sys.executable, str(script(folder, ONE_WORKER))]


def test_it_is_proved_faster_and_the_files_are_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("mine")
    shm = set(os.listdir("/dev/shm"))
    done = subprocess.run(
        command(tmp_path, "--budget", "100s", "--seconds", "3", "--json"),
        cwd=tmp_path, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kept"][0]["remedy"] == "num_workers"
    assert found["proof"]["speedup"] > 1.5 and found["proof"]["low"] > 1.0 and found["proof"]["loss_passed"]
    assert found["settings"]["num_workers"] > 1
    assert (tmp_path / "log.txt").read_text() == "mine" and not (tmp_path / "last.pt").exists()
    assert {path.name for path in Path(found["folder"]).iterdir()} <= {"journal.jsonl", "output.log", "proved"}
    assert set(os.listdir("/dev/shm")) <= shm
    # What was proved can be kept with the command that is shown.
    words = found["keep"]["command"].split()
    assert words[:2] == ["flatout", "apply"] and f"num_workers={found['settings']['num_workers']}" in words


def test_ctrl_c_in_a_trial_ends_all_processes_and_resume_goes_on(tmp_path: Path) -> None:
    options = ("--budget", "60s", "--seconds", "3")
    child = subprocess.Popen(
        command(tmp_path, *options), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stderr is not None
    for line in child.stderr:
        if "trial:" in line:
            break
    time.sleep(4)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=200)
    assert child.returncode == 130 and "Ended early by Ctrl-C" in out
    assert not descendants(os.getpid())
    again = subprocess.run(
        command(tmp_path, *options, "--resume", "--json"), cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["proof"]["speedup"] > 1.3
    assert len(list((tmp_path / ".flatout/fixes").iterdir())) == 1
