"""``kill -9`` of flatout at any moment leaves no process, no shared memory, no file; the record is read."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest

from flatout.diagnosis import diagnose
from flatout.errors import RecordError
from flatout.record import list_runs, load_run
from tests.end_to_end.profiling import FLATOUT, MARK, TORCHS_OWN, TRAIN, marked, script

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

AT_ONCE = 8
# The guardian gives processes 3 s to end by themselves, and kills them then.
GONE_WITHIN_S = 60.0


@dataclass
class Victim:
    """One flatout in a folder of its own, and a temporary folder whose name is short enough for sockets."""

    folder: Path
    temporary: Path
    mark: str
    process: subprocess.Popen[bytes]


def start(folder: Path, *words: str) -> Victim:
    folder.mkdir()
    mark, temporary = uuid.uuid4().hex, Path(tempfile.mkdtemp(prefix="k"))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(temporary), MARK: mark}
    process = subprocess.Popen(
        [*FLATOUT, *words, "--", sys.executable, script(folder, TRAIN), "100000", "0.005", "2"],
        cwd=folder, env=environment, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return Victim(folder, temporary, mark, process)


def left_by(victim: Victim, shm: set[str]) -> list[str]:
    """What is still there of a flatout that was killed."""
    files = {path.name for path in victim.folder.iterdir()} - {".flatout", "train.py"}
    temporary = [path.name for path in victim.temporary.iterdir() if not path.name.startswith(TORCHS_OWN)]
    new = [name for name in set(os.listdir("/dev/shm")) - shm if name.startswith("torch_") and _is_of(name, victim)]
    return [*marked(victim.mark), *sorted(files), *temporary, *new]


def _is_of(name: str, victim: Victim) -> bool:
    pids = {path.name.split("-")[0] for path in victim.folder.glob(".flatout/**/processes/*.json")}
    return name.split("_")[1] in pids


def killed_at_random_moments(tmp_path: Path, rounds: int, seed: int, longest_s: float, *words: str) -> list[Path]:
    """Kill AT_ONCE of them each round; gives back the folders of their runs."""
    draw = random.Random(seed)
    runs = []
    for number in range(rounds):
        shm = set(os.listdir("/dev/shm"))
        victims = [start(tmp_path / f"{number}-{place}", *words) for place in range(AT_ONCE)]
        moments = sorted(draw.uniform(0.0, longest_s) for _ in victims)
        begin_s = time.monotonic()
        try:
            for victim, moment_s in zip(victims, moments, strict=True):
                time.sleep(max(begin_s + moment_s - time.monotonic(), 0.0))
                os.kill(victim.process.pid, signal.SIGKILL)
                victim.process.wait()
            deadline_s = time.monotonic() + GONE_WITHIN_S
            while any(left_by(victim, shm) for victim in victims) and time.monotonic() < deadline_s:
                time.sleep(0.2)
            assert [left_by(victim, shm) for victim in victims] == [[]] * AT_ONCE
        finally:
            for victim in victims:
                victim.process.kill()
                victim.process.wait()
                shutil.rmtree(victim.temporary, ignore_errors=True)
        runs += [path for victim in victims for path in victim.folder.glob(".flatout/**/runs/2*")]
    return runs


def read(runs: list[Path]) -> int:
    """Read every run that was killed; how many of them hold training steps."""
    trained = 0
    for run in runs:
        try:
            diagnosis = diagnose(load_run(run))
        except RecordError as error:
            # Killed before run.json was written.
            assert not (run / "run.json").exists(), error
            continue
        assert any("not closed" in problem for problem in diagnosis.problems)
        assert list_runs(run.parent)
        trained += diagnosis.ledger is not None
    return trained


def test_a_profile_that_is_killed_leaves_nothing_and_a_record_that_is_read(tmp_path: Path) -> None:
    runs = killed_at_random_moments(tmp_path, 7, 1, 12.0, "profile", "--quiet")
    assert read(runs) > 0


def test_a_fix_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    killed_at_random_moments(tmp_path, 6, 2, 14.0, "fix", "--quiet", "--seconds", "2", "--budget", "60s")
