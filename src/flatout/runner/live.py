"""The current state of a recording's processes, from the headers of their event files."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flatout.errors import FlatoutError
from flatout.probe.events import BATCH_WAIT, EXPERIMENTED, FAILED, LIVE, LIVE_OFFSET, REPLAYED, SWITCHED, TRACED
from flatout.probe.writer import CHUNK_BYTES
from flatout.record.events import of_kinds, read_events
from flatout.record.fields import names_entry
from flatout.record.json_files import parse, read_json, read_lines
from flatout.runner.steps import StepCounter
from flatout.terminal_text import one_line

MOST_LOOKS = 64  # unchanged files that are reread in each update
NOTHING = (0,) * 8
NO_PROBE = (
    "no Python process started with the probe (`python -I` or `-E` and `env -i` keep it out, and so does a script that "
    "sets PYTHONPATH anew: write PYTHONPATH=...:$PYTHONPATH there)"
)


@dataclass(frozen=True)
class Live:
    """Counters of the process that has trained most, over all processes seen so far."""

    processes: int = 0  # Python processes that the probe started in
    with_torch: int = 0  # of these, with torch imported
    batches: int = 0
    steps: int = 0  # training steps, as the report counts them
    wait_s: float = 0.0  # for batches, within
    window_s: float = 0.0  # end of the first step to the end of the latest one, as in the report
    first_step_ns: int = 0
    last_step_ns: int = 0
    lost: int = 0
    traced: bool = False
    experimented: bool = False  # the experiments are over
    replayed: bool = False  # the steps with kept batches are over
    switched: bool = False  # the blocks of a live trial are over
    failed: tuple[int, ...] = ()  # pids of the processes in which the probe failed and stopped recording
    training_pid: int | None = None


class LiveReader:
    """Polls the live counters.

    No file stays open between polls: a training that recreates its workers each epoch leaves thousands of files.
    If there are many, each poll reads the most recently changed ones and some of the others in turn.
    """

    def __init__(self, run: Path) -> None:
        self._folder = run / "processes"
        self._listed_ns = -1  # when the folder had last changed
        self._announced = 0
        self._names: list[str] = []
        self._counters: dict[str, tuple[int, ...]] = {}
        self._moving: set[str] = set()
        self._turn = 0
        self._steps: StepCounter | None = None

    def read(self) -> Live:
        """Poll once."""
        self._list()
        rest = [name for name in self._names if name not in self._moving]
        turn = [rest[(self._turn + place) % len(rest)] for place in range(min(MOST_LOOKS, len(rest)))]
        self._turn += MOST_LOOKS
        for name in (*self._moving, *turn):
            counters = _counters(self._folder / name)
            if counters is None:
                continue
            if counters != self._counters.get(name):
                self._moving.add(name)
            elif len(self._moving) > MOST_LOOKS:
                self._moving.discard(name)
            self._counters[name] = counters
        trains = {name: counters for name, counters in self._counters.items() if counters[0] or counters[1]}
        lead = max(trains, key=lambda name: (trains[name][1], trains[name][0]), default=None)
        batches, backwards, _, _, first_ns, last_ns, lost, flags = trains[lead] if lead else NOTHING
        steps = self._count(lead, backwards, lost) if lead and first_ns else backwards
        failed = [name for name, values in self._counters.items() if values[-1] & FAILED]
        followed = self._steps if first_ns and not lost else None
        return Live(
            processes=self._announced,
            with_torch=len(self._names),
            batches=batches,
            steps=steps,
            wait_s=followed.wait_s if followed else 0.0,
            window_s=followed.window_s if followed else 0.0,
            first_step_ns=first_ns,
            last_step_ns=last_ns,
            lost=lost,
            traced=bool(flags & TRACED),
            experimented=bool(flags & EXPERIMENTED),
            replayed=bool(flags & REPLAYED),
            switched=bool(flags & SWITCHED),
            failed=tuple(sorted(filter(None, map(_pid, failed)))),
            training_pid=_pid(lead) if lead else None,
        )

    def _list(self) -> None:
        """The names of the files, listed again when one was added."""
        try:
            changed_ns = self._folder.stat().st_mtime_ns
            # A file added within the clock's resolution after the last poll does not change the time again.
            if changed_ns == self._listed_ns and time.time_ns() - changed_ns > 1_000_000_000:
                return
            names = os.listdir(self._folder)
        except OSError:
            return
        self._listed_ns = changed_ns
        self._announced = sum(name.endswith(".json") for name in names)
        self._names = [name for name in names if name.endswith(".events")]

    def _count(self, name: str, backwards: int, lost: int) -> int:
        """Steps of the process that trains, counted as the report does; without its events, its backward passes."""
        if self._steps is None or self._steps.path.name != name:
            self._steps = StepCounter(self._folder / name)
        steps = self._steps.read()
        return backwards if lost or not steps else steps

    def pids(self) -> set[int]:
        """Pids of all Python processes that the probe started in; some may have ended."""
        try:
            found = {_pid(name) for name in os.listdir(self._folder) if name.endswith(".json")}
        except OSError:
            return set()
        return {pid for pid in found if pid is not None}


def _counters(path: Path) -> tuple[int, ...] | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = os.pread(fd, LIVE.size, LIVE_OFFSET)
    except OSError:
        return None
    finally:
        os.close(fd)
    return LIVE.unpack(data) if len(data) == LIVE.size else None


def _pid(name: str) -> int | None:
    pid = name.split("-")[0]
    return int(pid) if pid.isdecimal() and pid.isascii() else None


def named(pids: tuple[int, ...]) -> str:
    """Words for some processes."""
    return f"process{'es' if len(pids) > 1 else ''} {', '.join(map(str, pids))}"


def what_was_seen(run: Path, live: Live) -> str:
    """A sentence for a recording without a training step: what was seen instead."""
    if shutil.disk_usage(run).free < CHUNK_BYTES:
        return f"the disk of {run.parent} is full, so nothing could be recorded"
    if not live.processes:
        return NO_PROBE
    if not live.with_torch:
        return f"{_count(live.processes, 'Python process', 'Python processes')} ran, and none imported torch"
    seen = "torch was imported"
    if live.failed:
        return f"{seen}, and the probe failed in {named(live.failed)}{_fault(run, live.failed)}"
    batches = _batches(run)
    seen += f", {_count(batches, 'batch was', 'batches were')} loaded" if batches else ", no DataLoader batch"
    seen += ", no backward pass"
    last = _last_place(run)
    return seen + (f"; the main thread was last seen in {last}" if last else "")


def _fault(run: Path, pids: tuple[int, ...]) -> str:
    """What failed in the first of these processes that has noted it, after a colon."""
    for pid in pids:
        for path in sorted((run / "processes").glob(f"{pid}-*.json")):
            with contextlib.suppress(OSError, ValueError):
                fault = str(read_json(path).get("fault") or "").strip()
                if fault:
                    return f": {one_line(fault.splitlines()[-1])} (a fault of flatout's, please report it)"
    return ""


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
            changed = path.stat().st_mtime
            own = _last_own_frame(path)
        except (OSError, ValueError):
            continue
        if own and (newest is None or changed > newest[0]):
            newest = (changed, one_line(f"{own[0]}:{own[1]} ({own[3]})" if own[3] else f"{own[0]}:{own[1]}"))
    return newest[1] if newest else None


def _last_own_frame(path: Path) -> list[Any] | None:
    """The user's innermost frame in the newest stack of one process that has any."""
    found = None
    for line in read_lines(path):
        try:
            entry = names_entry(parse(line), [])
        except ValueError:
            continue
        if entry.get("type") == "stack":
            found = next((frame for frame in entry.get("frames", ()) if frame[4]), found)
    return found
