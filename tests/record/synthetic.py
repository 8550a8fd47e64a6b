"""Lay down a faithful run folder from a description, with a clock that only moves when told.

::

    run = RunBuilder(tmp_path)
    main = run.process()
    loader = main.loader(num_workers=1, batch_size=4)
    worker = run.worker(main, 0)
    main.iterate(loader, workers=[worker])
    worker.fetch(batch=0, samples=4, cpu_s=0.1, blocked_s=0.3)
    main.step(loader, wait_s=0.5, forward_s=0.1, backward_s=0.2, optimizer_s=0.05)
    path = run.write()

Each process has its own ``now_s``, in seconds since the run began; ``at`` moves it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flatout.probe import events as kinds
from flatout.probe.events import batch_bits

# A machine that has been up for 11 days: large enough to show lost precision.
RUN_START_NS = 1_000_000_000_000_000
WALL_START_NS = 1_790_000_000_000_000_000


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


class ProcessBuilder:
    """One process; methods that take time move its clock."""

    def __init__(self, pid: int, ppid: int, start_s: float, info: dict[str, Any]) -> None:
        self.pid, self.start_s, self.now_s = pid, start_s, start_s
        self.start_ns = RUN_START_NS + ns(start_s)
        self.info = {
            "pid": pid,
            "ppid": ppid,
            "start_ns": self.start_ns,
            "argv": ["train.py"],
            "executable": "python",
            "python": "3.11.7",
            "cwd": ".",
            "torch": "2.15.0",
            "cuda": None,
            "device_count": 0,
            "rank": None,
            "local_rank": None,
            "world_size": None,
            "worker": None,
            "threads": 2,
            "schedstat": True,
            "io": True,
            "end_ns": None,
            **info,
        }
        self.events: list[tuple[int, int, int, int, int, int, int]] = []
        self.names: list[dict[str, Any]] = []
        self._ids: dict[str, int] = {}
        self._iterated: dict[int, int] = {}
        self._delivered: dict[int, int] = {}

    def name(self, type: str, **fields: Any) -> int:
        """Id of a name; the same fields give the same id."""
        key = json.dumps([type, fields])
        if key not in self._ids:
            self._ids[key] = len(self._ids) + 1
            self.names.append({"id": self._ids[key], "type": type, **fields})
        return self._ids[key]

    def text(self, text: str) -> int:
        return self.name("text", text=text)

    def site(self, line: int, source: str, file: str = "/home/me/train.py") -> int:
        return self.name("site", file=file, line=line, function="main", source=source)

    def loader(self, **settings: Any) -> int:
        """Describe a DataLoader; returns its name id."""
        defaults = {
            "num_workers": 0,
            "batch_size": 4,
            "prefetch_factor": None,
            "pin_memory": False,
            "persistent_workers": False,
            "in_order": True,
            "iterable": False,
            "dataset": "__main__.Photos",
            "start_method": None,
            "site": "/home/me/train.py:10",
            "batch_bytes": 1000,
        }
        number = len(self._ids)
        return self.name("loader", **{**defaults, **settings}, number=number)

    def at(self, time_s: float) -> ProcessBuilder:
        """Move the clock."""
        self.now_s = time_s
        return self

    def emit(
        self, kind: int, start_s: float, end_s: float, arg: int = 0, a: int = 0, b: int = 0, thread: int = 0
    ) -> None:
        """One event at given times; the clock stays."""
        start = RUN_START_NS + ns(start_s)
        self.events.append((kind, thread, arg, start, RUN_START_NS + ns(end_s) - start, a, b))

    def spend(self, kind: int, duration_s: float, arg: int = 0, a: int = 0, b: int = 0) -> None:
        """A span that begins now; no event when it takes no time and is no call."""
        start = self.now_s
        self.now_s += duration_s
        self.emit(kind, start, self.now_s, arg, a, b)

    @contextmanager
    def inside(self, kind: int, arg: int = 0, a: int = 0, b: int = 0) -> Iterator[None]:
        """A span around what happens in the block."""
        start = self.now_s
        yield
        self.emit(kind, start, self.now_s, arg, a, b)

    def pause(self, duration_s: float) -> None:
        """Time that no span covers."""
        self.now_s += duration_s

    def mode(self, train: bool) -> None:
        self.emit(kinds.MODE, self.now_s, self.now_s, int(train), self.text("Net"))

    def sample(
        self,
        time_s: float,
        source: str,
        line: int = 1,
        file: str = "/home/me/train.py",
        state: str = "R",
        user: bool = True,
        period_s: float = 0.05,
        function: str = "work",
        outer: Sequence[list[Any]] = (),
    ) -> None:
        """One stack sample: the innermost frame, and those that called it."""
        stack = self.name("stack", frames=[[file, line, function, source, user], *outer])
        self.emit(kinds.STACK, time_s, time_s, stack, ns(period_s), ord(state) if state else 0)

    # A training process.
    def iterate(self, loader: int, duration_s: float = 0.0, workers: Sequence[ProcessBuilder] = ()) -> None:
        """Begin a pass over a loader, with new workers if any are given."""
        iteration = self._iterated.get(loader, 0)
        self._iterated[loader] = iteration + 1
        self._delivered[loader] = 0
        self.spend(kinds.ITER_START, duration_s, loader, iteration)
        if workers:
            self.name("workers", loader=loader, iteration=iteration, pids=[worker.pid for worker in workers])

    def end_pass(self, loader: int, duration_s: float = 0.0) -> None:
        self.spend(kinds.ITER_END, duration_s, loader)

    def wait(self, loader: int, duration_s: float, samples: int = 4, worker: int = -1, ready: int = 0) -> None:
        """Wait for the next batch of a loader."""
        index = self._delivered.get(loader, 0)
        self._delivered[loader] = index + 1
        self.spend(kinds.BATCH_WAIT, duration_s, loader, index, batch_bits(samples, worker, ready, True))

    def step(
        self,
        loader: int | None = None,
        *,
        wait_s: float = 0.0,
        h2d_s: float = 0.0,
        forward_s: float | None = 0.0,
        loss_s: float = 0.0,
        backward_s: float = 0.0,
        optimizer_s: float | None = 0.0,
        read_s: float = 0.0,
        host_s: float = 0.0,
        samples: int = 4,
        worker: int = -1,
    ) -> None:
        """One training step; ``forward_s`` or ``optimizer_s`` None: that call is not seen."""
        if loader is not None:
            self.wait(loader, wait_s, samples, worker)
        if h2d_s:
            self.spend(kinds.H2D, h2d_s, self.site(12, "x = x.cuda()"), 1000)
        if forward_s is not None:
            self.spend(kinds.FORWARD, forward_s, self.text("Net"), 1, 1)
        self.pause(loss_s)
        self.spend(kinds.BACKWARD, backward_s)
        if optimizer_s is not None:
            self.spend(kinds.OPTIMIZER, optimizer_s, self.text("SGD"))
        if read_s:
            self.spend(kinds.BLOCKING_READ, read_s, self.site(20, "loss.item()"), self.text("item"))
        self.pause(host_s)

    # A fetching thread.
    def idle(self, duration_s: float) -> None:
        """A worker waits for indices."""
        self.spend(kinds.INDEX_WAIT, duration_s)

    def fetch(
        self,
        batch: int = -1,
        samples: int = 4,
        cpu_s: float = 0.0,
        runqueue_s: float = 0.0,
        blocked_s: float = 0.0,
        collate_s: float = 0.0,
        read_bytes: int = 0,
        storage_bytes: int = 0,
        sched: bool = True,
        io: bool = True,
        put_s: float = 0.0,
        items: bool = True,
    ) -> None:
        """Fetch one batch: ``collate_s`` is part of ``cpu_s``; ``put_s`` follows (0: in the training process)."""
        start, wall_s = self.now_s, cpu_s + runqueue_s + blocked_s
        end = start + wall_s
        if items:
            each_s = (wall_s - collate_s) / samples
            for number in range(samples):
                self.emit(kinds.ITEM, start + number * each_s, start + (number + 1) * each_s, a=number)
        if collate_s:
            self.emit(kinds.COLLATE, end - collate_s, end)
        self.emit(kinds.FETCH, start, end, a=batch, b=samples)
        if sched:
            self.emit(kinds.FETCH_SCHED, start, end, a=ns(cpu_s), b=ns(runqueue_s))
        if io:
            self.emit(kinds.FETCH_IO, start, end, arg=samples, a=read_bytes, b=storage_bytes)
        self.emit(kinds.FETCH_PROCESS, start, end, a=ns(cpu_s), b=0)
        self.now_s = end
        if put_s:
            self.spend(kinds.PUT, put_s, a=batch)


class RunBuilder:
    """A run folder in the making."""

    def __init__(self, folder: Path, id: str = "synthetic") -> None:
        self.path, self.id = folder / id, id
        self.processes: list[ProcessBuilder] = []
        self.info: dict[str, Any] = {}
        self.machine: dict[str, Any] = {"mounts": [{"point": "/", "kind": "nvme", "remote": False}]}
        self.system: list[dict[str, Any]] = []

    def process(self, start_s: float = 0.0, **info: Any) -> ProcessBuilder:
        """A training process (or any other); ``info`` goes into its JSON file."""
        builder = ProcessBuilder(100 + len(self.processes), 1, start_s, info)
        self.processes.append(builder)
        return builder

    def worker(
        self, parent: ProcessBuilder, id: int, start_s: float = 0.0, startup_s: float = 0.0, **info: Any
    ) -> ProcessBuilder:
        """A DataLoader worker with this worker id, ready ``startup_s`` after its start."""
        builder = ProcessBuilder(100 + len(self.processes), parent.pid, start_s, {"worker": id, **info})
        builder.spend(kinds.WORKER_START, startup_s, a=id)
        self.processes.append(builder)
        return builder

    def write(self, **info: Any) -> Path:
        """Write the folder; ``info`` replaces fields of run.json. Returns its path."""
        end_s = max((process.now_s for process in self.processes), default=0.0)
        folder = self.path / "processes"
        folder.mkdir(parents=True)
        written = {
            "format": kinds.FORMAT_VERSION,
            "id": self.id,
            "flatout": "0.1.0",
            "command": ["python", "train.py"],
            "cwd": ".",
            "started": "2026-11-20T12:00:00Z",
            "start_ns": RUN_START_NS,
            "end_ns": RUN_START_NS + ns(end_s),
            "window_end_ns": None,
            "bounds": {"steps": None, "seconds": None, "full": True},
            "stop": "finished",
            "exit_code": 0,
            "signal": None,
            "problems": [],
            "clean": True,
            **self.info,
            **info,
        }
        (self.path / "run.json").write_text(json.dumps(written))
        (self.path / "machine.json").write_text(json.dumps(self.machine))
        (self.path / "system.jsonl").write_text("".join(json.dumps(line) + "\n" for line in self.system))
        for process in self.processes:
            _write_process(process, folder)
        return self.path


def _write_process(process: ProcessBuilder, folder: Path) -> None:
    stem = f"{process.pid}-{process.start_ns}"
    ended = {"end_ns": RUN_START_NS + ns(process.now_s), "exit": {"code": 0}}
    (folder / f"{stem}.json").write_text(json.dumps({**process.info, **ended}))
    header = bytearray(kinds.HEADER_BYTES)
    kinds.HEADER.pack_into(
        header, 0, kinds.MAGIC, kinds.FORMAT_VERSION, kinds.EVENT.size, process.pid, RUN_START_NS, WALL_START_NS
    )
    # Spans are written when they end; the order among equal ends is the order of writing.
    ordered = sorted(process.events, key=lambda event: event[3] + event[4])
    body = b"".join(kinds.EVENT.pack(*event) for event in ordered)
    (folder / f"{stem}.events").write_bytes(bytes(header) + body + bytes(kinds.EVENT.size * 10))
    (folder / f"{stem}.names").write_text("".join(json.dumps(entry) + "\n" for entry in process.names))
