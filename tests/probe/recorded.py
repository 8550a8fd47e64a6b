"""Run a small training script, bare or under the probe, and give back what it printed and what was recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import flatout.probe
from flatout.probe import events
from flatout.record import Run, load_run
from flatout.record.events import read_events
from flatout.runner.sources import add_sources

INJECT = Path(flatout.probe.__file__).parent / "on_pythonpath"


@dataclass(frozen=True)
class Recorded:
    """What came out of one run of a script."""

    code: int
    out: str
    err: str
    run: Run | None

    @property
    def main(self):
        """The process that trained: the one with most backward passes."""
        return max(self.run.processes, key=lambda process: len(process.of_kinds(events.BACKWARD)))

    @property
    def workers(self):
        """The DataLoader's workers."""
        return [process for process in self.run.processes if process.worker is not None]

    def counts(self, process=None) -> Counter:
        """Events by kind name."""
        kinds = (process or self.main).events["kind"].tolist()
        return Counter(events.KIND_NAMES[kind] for kind in kinds)

    def faults(self) -> list[str]:
        """Faults of the probe that the processes noted."""
        return [process.info["fault"] for process in self.run.processes if process.info.get("fault")]


def run_bare(folder: Path, source: str, *arguments: str, env: dict[str, str] | None = None) -> Recorded:
    """Run ``source`` as a script without the probe."""
    return _run(folder, source, arguments, env or {}, None)


def run_probed(folder: Path, source: str, *arguments: str, env: dict[str, str] | None = None) -> Recorded:
    """Run ``source`` as a script under the probe."""
    return _run(folder, source, arguments, env or {}, new_run_folder(folder))


def new_run_folder(folder: Path) -> Path:
    """An empty run folder, as ``flatout profile`` makes it."""
    run = folder / f"run-{time.monotonic_ns()}"
    (run / "processes").mkdir(parents=True)
    (run / "control").write_bytes(bytes(4096))
    return run


def probed_env(run: Path, env: dict[str, str]) -> dict[str, str]:
    """The environment that starts the probe."""
    path = os.pathsep.join(filter(None, [str(INJECT), env.get("PYTHONPATH", "")]))
    return {**env, "FLATOUT_RUN": str(run), "PYTHONPATH": path}


def _run(folder: Path, source: str, arguments: tuple[str, ...], env: dict[str, str], run: Path | None) -> Recorded:
    script = folder / "script.py"
    script.write_text(dedent(source))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **(probed_env(run, env) if run else env)}
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
    )
    return Recorded(done.returncode, done.stdout, done.stderr, read_back(run) if run else None)


def written(run: Path, kind: int) -> list[int]:
    """How many events of a kind each process has in its file so far; the processes may still run."""
    return [int((read_events(path).events["kind"] == kind).sum()) for path in (run / "processes").glob("*.events")]


def read_back(run: Path) -> Run:
    """Read a run folder that no recorder has closed."""
    info = {"format": events.FORMAT_VERSION, "id": run.name, "command": ["python"], "start_ns": 0}
    (run / "run.json").write_text(json.dumps(info))
    add_sources(run)
    return load_run(run)
