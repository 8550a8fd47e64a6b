"""Interpreters other than flatout's own, named by FLATOUT_PYTHONS: older ones, newer ones, other versions of torch."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from flatout.probe import events
from tests.probe.parts import SCRIPTS, counts, importing, told, within
from tests.probe.recorded import Recorded, new_run_folder, probed_env, read_back

NAMED = [python for python in os.environ.get("FLATOUT_PYTHONS", "").split(os.pathsep) if python]
NONE = pytest.param("", marks=pytest.mark.skip("FLATOUT_PYTHONS names no interpreter with torch: A/bin/python:B/…"))
every_python = pytest.mark.parametrize("python", NAMED or [NONE])
# A cycle of torch's own that is collected at another moment, with and without the probe: an old iterator in a worker.
COLLECTED = re.compile(r"Exception ignored in: .*LoaderIter.*\n(?:.*\n)*?AssertionError: can only test a child.*\n")


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
            timeout=250,
            check=False,
        )
        ran.append(Recorded(done.returncode, done.stdout, done.stderr, read_back(run) if run else None))
    return ran


@every_python
@pytest.mark.parametrize(("script", "arguments"), [("loops.py", ()), ("worker_loops.py", ("fork",))])
def test_another_python_is_recorded_the_same(
    tmp_path: Path, python: str, script: str, arguments: tuple[str, ...]
) -> None:
    bare, probed = run_with(python, tmp_path, script, *arguments)
    assert bare.code == probed.code == 0, probed.err[-3000:]
    assert len(bare.out.splitlines()) > 12
    assert probed.out == bare.out
    assert probed.faults() == []
    part = "two epochs" if script == "loops.py" else "new workers each epoch"
    phases = (events.BATCH_WAIT, events.FORWARD, events.BACKWARD, events.OPTIMIZER)
    assert counts(within(probed, part), *phases) == (12, 12, 12, 12)
    assert sum(counts(process.events, events.FETCH)[0] for process in [probed.main, *probed.workers]) > 12


@every_python
def test_another_python_notices_nothing(tmp_path: Path, python: str) -> None:
    bare, probed = run_with(python, tmp_path, "noticing.py")
    assert bare.code == probed.code == 0, probed.err[-3000:]
    assert probed.out == bare.out
    assert COLLECTED.sub("", probed.err) == COLLECTED.sub("", bare.err)
    assert probed.run is not None
    assert [process.info.get("not_patched") for process in probed.run.processes] == [{}]


@every_python
def test_another_python_compiles_to_as_many_graphs(tmp_path: Path, python: str) -> None:
    bare, probed = run_with(python, tmp_path, "compiling.py", "aot_eager")
    assert bare.code == probed.code == 0, probed.err[-3000:]
    assert probed.out == bare.out


@every_python
def test_no_warning_about_forks_beside_threads_is_added(tmp_path: Path, python: str) -> None:
    """The sampler's thread is gone before a fork; the bare script forks with as many threads as it has itself."""
    flags = ("-W", "error::DeprecationWarning")
    bare, probed = run_with(python, tmp_path, "worker_loops.py", "fork", flags=flags)
    if bare.code:
        pytest.skip(f"the bare script warns: {bare.err.splitlines()[-1]}")
    assert probed.code == 0, probed.err[-2000:]
    assert probed.out == bare.out
    assert "part any order" in told(probed)
    assert len(probed.main.of_kinds(events.STACK)) > 0
