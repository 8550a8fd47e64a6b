"""A recorded run as a timeline: a track for each thread that did something, and what the machine did meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import PurePath

import numpy as np

from flatout.errors import UsageError
from flatout.export.batch_flows import batch_flows
from flatout.export.event_slices import event_slices
from flatout.export.machine_counters import machine_counters, process_counters, ready_batches
from flatout.export.timeline import Flags, Ints, Process, Slices, Texts, Timeline, Track
from flatout.measure.training import StepTable, Training, find_training
from flatout.record import ProcessRecord, Run
from flatout.units import counted

# A step that takes this many times the median stands out.
SLOW = 2.0
_NO_STEPS = "no complete training step was recorded: the trace has no steps, and no range of them can be chosen"


def run_timeline(
    run: Run,
    causes: Mapping[int, str],
    steps: tuple[int, int] | None = None,
    ranks: Collection[int] | None = None,
) -> Timeline:
    """Everything that was recorded of a run, in tracks.

    Args:
        run: as it was recorded.
        causes: of an event kind: the id of the cause that a diagnosis named for time of that kind.
        steps: first and last step whose time is kept, counted from 0; None: all.
        ranks: of a distributed training that are kept, with their workers; None: all.
    """
    training = find_training(run)
    notes = [] if training is not None else [_NO_STEPS]
    window = time_of_steps(training, steps) if training is not None and steps is not None else None
    chosen = [process for process in run.processes if ranks is None or _rank(process, run) in ranks]
    texts = Texts()
    flows = batch_flows(run, training) if training is not None else {}
    processes = []
    samples = list(run.system())
    for process in chosen:
        found = event_slices(process, texts, causes, flows.get(process.key, {}))
        if training is not None and process is training.process:
            found.setdefault(training.thread, []).append(_steps(training.steps, texts))
        counters = [*process_counters(samples, process.pid), *ready_batches(process)]
        tracks = tuple(
            Track(_thread_name(thread, process), tuple(slices), main=thread == 0)
            for thread, slices in sorted(found.items())
        )
        processes.append(Process(process.pid, _process_name(process), tracks, tuple(counters)))
    machine = Process(0, "machine", counters=tuple(machine_counters(samples)))
    known = next((process for process in run.processes if process.wall_ns), None)
    timeline = Timeline(
        run=run.id,
        texts=texts,
        processes=(machine, *processes),
        offset_ns=known.wall_ns - known.clock_ns if known is not None else 0,
        notes=(*notes, *run.problems),
    )
    return timeline if window is None else _inside(timeline, *window)


def _rank(process: ProcessRecord, run: Run) -> int:
    """The rank of a process, of its parent for a worker; 0 where there are none."""
    if process.rank is not None:
        return process.rank
    parent = next((each for each in run.processes if each.pid == process.ppid), None)
    return parent.rank or 0 if parent is not None else 0


def _process_name(process: ProcessRecord) -> str:
    if process.worker is not None:
        return f"worker {process.worker}" + (f" of rank {process.rank}" if process.rank is not None else "")
    words = process.info.get("argv") or ()
    script = next((word for word in words if word.endswith(".py")), words[0] if words else "")
    name = PurePath(script).name or "python"
    return name + (f" rank {process.rank}" if process.rank is not None else "")


def _thread_name(thread: int, process: ProcessRecord) -> str:
    if thread == 0:
        return "main thread"
    return "feeder thread" if process.worker is not None else f"thread {thread}"


def _steps(steps: StepTable, texts: Texts) -> Slices:
    """A slice for each step; the phases of the training thread lie inside."""
    end = steps.start_ns + np.round(steps.duration_s * 1e9).astype(np.int64)
    slow = steps.duration_s > SLOW * float(np.median(steps.duration_s))
    return Slices(
        start=steps.start_ns,
        end=end,
        name=np.where(slow, texts.id("slow step"), texts.id("step")),
        category="step",
        numbers={
            "step": np.arange(len(steps)),
            "epoch": steps.epoch,
            "samples": np.where(steps.samples > 0, steps.samples, -1),
            "waited_us": np.round(steps.wait_s * 1e6).astype(np.int64),
        },
    )


def time_of_steps(training: Training, steps: tuple[int, int]) -> tuple[int, int]:
    """Begin and end of a range of steps, ns; the last one may lie beyond the end.

    Raises:
        UsageError: the first one does.
    """
    table = training.steps
    first, last = steps[0], min(steps[1], len(table) - 1)
    if first >= len(table):
        raise UsageError(f"--steps {first}:{steps[1]}: the run has {counted(len(table), 'step')}, counted from 0")
    return int(table.start_ns[first]), int(table.start_ns[last] + table.duration_s[last] * 1e9)


def _inside(timeline: Timeline, begin: int, finish: int) -> Timeline:
    """What overlaps [begin, finish), ns."""

    def overlaps(start: Ints, end: Ints) -> Flags:
        return np.asarray((end > begin) & (start < finish))

    processes = []
    for process in timeline.processes:
        tracks = []
        for track in process.tracks:
            slices = (part.take(overlaps(part.start, part.end)) for part in track.slices)
            kept = tuple(part for part in slices if len(part))
            if kept:
                tracks.append(Track(track.name, kept, track.main))
        counters = tuple(
            type(each)(each.name, each.unit, each.time[inside], each.value[inside])
            for each in process.counters
            if (inside := overlaps(each.time, each.time)).any()
        )
        if tracks or counters or not process.pid:
            processes.append(Process(process.pid, process.name, tuple(tracks), counters))
    return Timeline(timeline.run, timeline.texts, tuple(processes), timeline.offset_ns, timeline.notes)
