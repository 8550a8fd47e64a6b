"""What the processes of a recording are doing right now, from the headers of their event files."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from flatout.errors import FlatoutError
from flatout.probe.events import BATCH_WAIT, LIVE, LIVE_OFFSET
from flatout.probe.writer import CHUNK_BYTES
from flatout.record.events import of_kinds, read_events


@dataclass(frozen=True)
class Live:
    """Counters of the process that has trained most, over all processes seen so far."""

    processes: int = 0  # Python processes that the probe started in
    with_torch: int = 0  # of these, with torch imported
    batches: int = 0
    steps: int = 0  # backward passes
    wait_s: float = 0.0
    first_step_ns: int = 0
    last_step_ns: int = 0
    lost: int = 0
    traced: bool = False
    training_pid: int | None = None


class LiveReader:
    """Reads the live counters again and again; keeps the files open so that each look is cheap."""

    def __init__(self, run: Path) -> None:
        self._folder = run / "processes"
        self._files: dict[str, int] = {}

    def read(self) -> Live:
        """Look once."""
        announced = 0
        try:
            names = os.listdir(self._folder)
        except OSError:
            return Live()
        for name in names:
            announced += name.endswith(".json")
            if name.endswith(".events") and name not in self._files:
                try:
                    self._files[name] = os.open(self._folder / name, os.O_RDONLY | os.O_CLOEXEC)
                except OSError:
                    continue
        best: tuple[int, ...] = (0,) * 8
        best_name = None
        for name, fd in self._files.items():
            data = os.pread(fd, LIVE.size, LIVE_OFFSET)
            if len(data) < LIVE.size:
                continue
            counters = LIVE.unpack(data)
            if (counters[1], counters[0]) > (best[1], best[0]):
                best, best_name = counters, name
        batches, backwards, _, wait_ns, first_ns, last_ns, lost, traced = best
        return Live(
            processes=announced,
            with_torch=len(self._files),
            batches=batches,
            steps=backwards,
            wait_s=wait_ns / 1e9,
            first_step_ns=first_ns,
            last_step_ns=last_ns,
            lost=lost,
            traced=bool(traced),
            training_pid=int(best_name.split("-")[0]) if best_name else None,
        )

    def pids(self) -> set[int | None]:
        """Pids of all Python processes that the probe started in; some may have ended."""
        return {int(path.name.split("-")[0]) for path in self._folder.glob("*.json")}

    def close(self) -> None:
        """Let the files go."""
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()


def what_was_seen(run: Path, live: Live) -> str:
    """A sentence for a recording without a training step: what was seen instead."""
    if shutil.disk_usage(run).free < CHUNK_BYTES:
        return f"the disk of {run.parent} is full, so nothing could be recorded"
    if not live.processes:
        return (
            "no Python process started with the probe (a command that clears PYTHONPATH, or `python -I`/`-E`, "
            "keeps it out)"
        )
    if not live.with_torch:
        return f"{_count(live.processes, 'Python process', 'Python processes')} ran, and none imported torch"
    seen = "torch was imported"
    batches = _batches(run)
    seen += f", {_count(batches, 'batch was', 'batches were')} loaded" if batches else ", no DataLoader batch"
    seen += ", no backward pass"
    last = _last_place(run)
    return seen + (f"; the main thread was last seen in {last}" if last else "")


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _batches(run: Path) -> int:
    """Batches in the record: the live counters move only with training steps."""
    batches = 0
    for path in (run / "processes").glob("*.events"):
        try:
            batches += len(of_kinds(read_events(path).events, BATCH_WAIT))
        except (OSError, FlatoutError):
            continue
    return batches


def _last_place(run: Path) -> str | None:
    """The user's line in the newest stack of any process."""
    newest: tuple[float, str] | None = None
    for path in (run / "processes").glob("*.names"):
        try:
            lines = path.read_text(errors="replace").splitlines()
            changed = path.stat().st_mtime
        except OSError:
            continue
        for line in reversed(lines):
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if entry.get("type") != "stack":
                continue
            own = next((frame for frame in entry["frames"] if frame[4]), None)
            if own and (newest is None or changed > newest[0]):
                newest = (changed, f"{own[0]}:{own[1]} ({own[3]})" if own[3] else f"{own[0]}:{own[1]}")
            if own:
                break
    return newest[1] if newest else None
