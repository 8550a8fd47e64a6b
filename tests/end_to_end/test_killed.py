"""``kill -9`` of flatout at any moment leaves no process, no shared memory, no file; what it has written is read."""

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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from flatout.diagnosis import diagnose
from flatout.errors import RecordError
from flatout.record import list_runs, load_run
from flatout.trials.journal import Journal
from tests.end_to_end.profiling import FLATOUT, MARK, ONE_WORKER, TORCHS_OWN, TRAIN, marked, script

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

# Of each command, a multiple of ten: a hundred take some four minutes, and .ci/run asks for fewer.
KILLS = int(os.environ.get("FLATOUT_TEST_KILLS", "100"))
AT_ONCE = 8
# The guardian gives processes 3 s to end by themselves, and kills them then.
GONE_WITHIN_S = 120.0
REACHED_WITHIN_S = 600.0
POLL_S = 0.2


@dataclass(frozen=True)
class Phase:
    """Kills at a random moment of the seconds after a line of the progress: however fast the machine is.

    Attributes:
        line: What flatout prints as the phase begins; empty: it begins with flatout itself.
        seconds: The latest moment after that.
        share: Of the kills.
    """

    line: str
    seconds: float
    share: float

    @property
    def kills(self) -> int:
        """How many."""
        return round(self.share * KILLS)


@dataclass
class Victim:
    """One flatout in a folder of its own, and a temporary folder whose name is short enough for sockets."""

    folder: Path
    temporary: Path
    mark: str
    progress: Path
    shm: set[str]
    process: subprocess.Popen[bytes]


def start(folder: Path, source: str, words: Sequence[str]) -> Victim:
    folder.mkdir()
    mark, temporary, progress = uuid.uuid4().hex, Path(tempfile.mkdtemp(prefix="k")), folder.with_suffix(".err")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(temporary), MARK: mark}
    shm = set(os.listdir("/dev/shm"))
    with progress.open("wb") as err:
        process = subprocess.Popen(
            [*FLATOUT, *words, "--", sys.executable, script(folder, source), "100000", "0.005", "2"],
            cwd=folder, env=environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err,
        )  # fmt: skip
    return Victim(folder, temporary, mark, progress, shm, process)


def left_by(victim: Victim) -> list[str]:
    """What is still there of a flatout that was killed."""
    files = {path.name for path in victim.folder.iterdir()} - {".flatout", "train.py"}
    files |= {str(path) for path in victim.folder.glob(".flatout/try/*")}  # unlike a record, it is of no use to anybody
    temporary = [path.name for path in victim.temporary.iterdir() if not path.name.startswith(TORCHS_OWN)]
    # A walk, since folders go away meanwhile.
    walked = [names for folder, _, names in os.walk(victim.folder / ".flatout") if folder.endswith("/processes")]
    pids = {name.split("-")[0] for names in walked for name in names if name.endswith(".json")}
    shm = [name for name in os.listdir("/dev/shm") if name.startswith("torch_") and name.split("_")[1] in pids]
    return [*marked(victim.mark), *sorted(files), *temporary, *(set(shm) - victim.shm)]


def reach(victim: Victim, line: str) -> None:
    """Wait until flatout has printed a line."""
    deadline_s = time.monotonic() + REACHED_WITHIN_S
    while line not in (said := victim.progress.read_text()):
        assert victim.process.poll() is None, f"ended by itself: {said}"
        assert time.monotonic() < deadline_s, f"never said {line!r}: {said}"
        time.sleep(POLL_S)


def live_and_die(folder: Path, phase: Phase, moment_s: float, source: str, words: Sequence[str]) -> None:
    victim = start(folder, source, words)
    try:
        reach(victim, phase.line)
        time.sleep(moment_s)
        assert victim.process.poll() is None, f"ended by itself: {victim.progress.read_text()}"
        victim.process.kill()
        assert victim.process.wait() == -signal.SIGKILL
        deadline_s = time.monotonic() + GONE_WITHIN_S
        while (left := left_by(victim)) and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
        assert not left, f"killed {moment_s:.2f} s after {phase.line!r}"
    finally:
        victim.process.kill()
        victim.process.wait()
        shutil.rmtree(victim.temporary, ignore_errors=True)


def kill_in(phases: Sequence[Phase], tmp_path: Path, source: str, *words: str) -> list[Path]:
    """Kill in each of the phases, AT_ONCE at the same time; gives back the folders in which they ran."""
    tmp_path.mkdir(exist_ok=True)
    draw = random.Random(1)
    lives = [phase for phase in phases for _ in range(phase.kills)]
    draw.shuffle(lives)
    folders = [tmp_path / str(number) for number in range(len(lives))]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        moments = [draw.uniform(0.0, phase.seconds) for phase in lives]
        ended = [
            pool.submit(live_and_die, folder, phase, moment_s, source, words)
            for folder, phase, moment_s in zip(folders, lives, moments, strict=True)
        ]
        try:
            for one in ended:
                one.result()
        finally:
            pool.shutdown(cancel_futures=True)
    assert len(folders) == KILLS
    return folders


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
    phases = [Phase("", 10.0, 0.6), Phase("first training step", 3.0, 0.4)]
    folders = kill_in(phases, tmp_path, TRAIN, "profile")
    assert read([run for folder in folders for run in folder.glob(".flatout/runs/2*")]) > 0


def test_a_fix_that_is_killed_leaves_nothing_and_a_journal_that_is_read(tmp_path: Path) -> None:
    phases = [Phase("", 15.0, 0.8), Phase("trial: ", 12.0, 0.2)]
    folders = kill_in(phases, tmp_path, ONE_WORKER, "fix", "--seconds", "1", "--budget", "30m")
    scratch = ".flatout/fixes/*/scratch-*"
    deadline_s = time.monotonic() + 30
    while (left := [path for folder in folders for path in folder.glob(scratch)]) and time.monotonic() < deadline_s:
        time.sleep(0.3)
    assert not left
    journals = [Journal(path.parent) for folder in folders for path in folder.glob(".flatout/fixes/*/journal.jsonl")]
    looked = 0
    for journal in journals:
        lines = journal.read()
        assert len(lines) == len((journal.folder / "journal.jsonl").read_text().splitlines())
        looked += "look" in [line["kind"] for line in lines]
    assert looked >= phases[1].kills


def test_a_try_that_is_killed_leaves_nothing_but_the_files_as_they_were(tmp_path: Path) -> None:
    change = tmp_path / "change.diff"
    change.write_text(
        "--- a/train.py\n+++ b/train.py\n@@ -10,2 +10,2 @@\n     def __getitem__(self, index):\n"
        "-        time.sleep(0.01)\n+        time.sleep(0.005)\n"
    )
    phases = [Phase("", 15.0, 0.5), Phase("pair 1", 10.0, 0.5)]  # a pair of runs takes longer
    words = ("try", "--patch", str(change), "--seconds", "1", "--budget", "30m")
    folders = kill_in(phases, tmp_path / "kills", ONE_WORKER, *words)
    for folder in folders:
        assert "time.sleep(0.01)" in (folder / "train.py").read_text()
