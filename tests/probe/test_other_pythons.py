"""Interpreters other than flatout's own: an older one, and one that warns about forks beside threads."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from flatout.probe import events
from tests.probe.parts import SCRIPTS, counts, importing, told, within
from tests.probe.recorded import Recorded, new_run_folder, probed_env, read_back


def interpreter(variable: str, what: str) -> str:
    python = os.environ.get(variable)
    if not python:
        pytest.skip(f"{variable} does not name an interpreter: {what}")
    return python


def run_with(python: str, folder: Path, script: str, *arguments: str, flags: tuple[str, ...] = ()) -> list[Recorded]:
    """The script bare, then under the probe."""
    ran = []
    for run in (None, new_run_folder(folder)):
        env = {"OMP_NUM_THREADS": "1", **(probed_env(run, importing(None)) if run else importing(None))}
        done = subprocess.run(
            [python, *flags, str(SCRIPTS / script), *arguments],
            env={**os.environ, **env},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        ran.append(Recorded(done.returncode, done.stdout, done.stderr, read_back(run) if run else None))
    return ran


@pytest.mark.parametrize(("script", "arguments"), [("loops.py", ()), ("worker_loops.py", ("fork",))])
def test_an_older_python_with_an_older_torch_is_recorded_the_same(
    tmp_path: Path, script: str, arguments: tuple[str, ...]
) -> None:
    python = interpreter("FLATOUT_OLD_PYTHON", "Python 3.9 or later with an older torch")
    bare, probed = run_with(python, tmp_path, script, *arguments)
    assert bare.code == probed.code == 0, probed.err[-3000:]
    assert len(bare.out.splitlines()) > 12
    assert probed.out == bare.out
    assert probed.faults() == []
    part = "two epochs" if script == "loops.py" else "new workers each epoch"
    phases = (events.BATCH_WAIT, events.FORWARD, events.BACKWARD, events.OPTIMIZER)
    assert counts(within(probed, part), *phases) == (12, 12, 12, 12)
    assert sum(counts(process.events, events.FETCH)[0] for process in [probed.main, *probed.workers]) > 12


def test_no_warning_about_forks_beside_threads_is_added(tmp_path: Path) -> None:
    """The sampler's thread is gone before a fork; the bare script forks with as many threads as it has itself."""
    python = interpreter("FLATOUT_PYTHON_312", "Python 3.12 or later with torch")
    flags = ("-W", "error::DeprecationWarning")
    bare, probed = run_with(python, tmp_path, "worker_loops.py", "fork", flags=flags)
    assert bare.code == 0, bare.err[-2000:]
    assert probed.code == 0, probed.err[-2000:]
    assert probed.out == bare.out
    assert "part any order" in told(probed)
    assert len(probed.main.of_kinds(events.STACK)) > 0
