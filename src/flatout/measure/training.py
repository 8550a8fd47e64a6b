"""The training in a run: its process, its loader, its steps, its passes and the measured window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flatout.measure.batch_groups import GroupedSteps, grouped_steps
from flatout.measure.closing_validation import closing_validation_end
from flatout.measure.timeline import Flags, Floats, Ints
from flatout.probe import events as kinds
from flatout.record import Events, ProcessRecord, Run, ends, of_kinds
from flatout.record.packed_fields import batch_samples

# Signs that a process trains, the surest one first.
TRAINING_SIGNS = (kinds.BACKWARD, kinds.OPTIMIZER, kinds.BATCH_WAIT)
# A second loader trains too (paired data) when it is waited for at least this often per batch of the first.
PAIRED_SHARE = 0.5
_MOSTLY = 0.8  # of the steps, whose samples are known
# Batches of a DataLoader that gives a training all its data at once; least updates that it makes of them, and of each.
_TAKEN_ONCE, _WITHOUT_BATCHES, _OF_ONE = 2, 16, 8


@dataclass(frozen=True)
class StepTable:
    """One row a training step, in time order. Times in ns, durations in seconds."""

    start_ns: Ints
    work_end_ns: Ints  # end of its last backward pass or optimizer step
    duration_s: Floats  # up to the next step; the last one of a pass up to its ``work_end_ns``
    wait_s: Floats
    samples: Ints  # 0: unknown
    epoch: Ints  # pass over the training loader, counted from 0
    updates: Ints  # 1 where an optimizer stepped

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True)
class Training:
    """The training side of a run. Times are ns of CLOCK_MONOTONIC."""

    process: ProcessRecord
    processes: int  # training processes in the record, this one included
    others: tuple[StepTable, ...]  # the steps of the other training processes
    thread: int
    events: Events  # of that thread, in order of start
    loaders: tuple[int, ...]  # name ids of the loaders that feed training; the first one counts the steps
    other_loaders: tuple[int, ...]  # validation
    pass_starts: Ints  # when each pass over the first training loader began
    steps: StepTable  # every complete step of the record
    in_window: slice  # those of them inside the window
    begin_ns: int  # process start
    window_begin_ns: int  # end of the first step
    window_end_ns: int  # end of the last complete step inside the bounds, and of the validation that closes its epoch
    closed_by_validation: bool  # the window ends with that validation
    finish_ns: int  # end of the record
    notes: tuple[str, ...]
    unfinished_validation_ns: int | None = None  # began in the window, and goes on at its end

    @property
    def loader(self) -> int | None:
        """The loader that counts the steps; None when training uses no DataLoader."""
        return self.loaders[0] if self.loaders else None

    @property
    def window_ns(self) -> int:
        """Length of the window."""
        return self.window_end_ns - self.window_begin_ns

    def kind(self, *wanted: int) -> Events:
        """Events of the training thread of these kinds, in order of start."""
        return of_kinds(self.events, *wanted)


def find_training(run: Run) -> Training | None:
    """The training process of a run and its steps; None when no complete step was recorded."""
    for sign in TRAINING_SIGNS:
        trains = [p for p in run.processes if p.worker is None and np.any(p.events["kind"] == sign)]
        if trains:
            break
    else:
        return None
    # Lowest rank; without ranks the process that trains most.
    lead = min(trains, key=lambda p: (p.rank if p.rank is not None else 0, -np.count_nonzero(p.events["kind"] == sign)))
    found = marked(lead, sign)
    thread, events, marks, loaders, others = found.thread, found.events, found.marks, found.loaders, found.other_loaders
    notes = _notes(lead, trains, sign)
    if not loaders and np.any(lead.of_kinds(kinds.BATCH_WAIT)["thread"] != thread):
        notes.append("batches are taken in another thread than the one that trains: their wait is not in the ledger")
    passes, steps = found.passes, found.steps
    if not len(steps):
        return None
    begin = _first_step_end(lead, events, marks, loaders) if loaders else int(steps.work_end_ns[0])
    limit = run.window_end_ns if run.window_end_ns is not None else run.end_ns
    finished = np.flatnonzero((steps.work_end_ns > begin) & (steps.work_end_ns <= limit))
    chosen = slice(int(finished[0]), int(finished[-1]) + 1) if len(finished) else slice(0, 0)
    last = end = int(steps.work_end_ns[chosen].max()) if len(finished) else begin
    if run.window_end_ns is None and run.ending.stop == "finished":
        end = closing_validation_end(events, others, begin, last)
    return Training(
        process=lead,
        processes=len(trains),
        others=tuple(marked(process, sign).steps for process in trains if process is not lead),
        thread=thread,
        events=events,
        loaders=loaders,
        other_loaders=others,
        pass_starts=passes,
        steps=steps,
        in_window=chosen,
        begin_ns=lead.start_ns,
        window_begin_ns=begin,
        window_end_ns=end,
        closed_by_validation=end > last,
        finish_ns=max(run.end_ns, lead.last_ns),
        notes=tuple(notes),
    )


@dataclass(frozen=True)
class Marked:
    """The thread of a process that trains, and its steps."""

    thread: int
    events: Events
    marks: Events
    loaders: tuple[int, ...]
    other_loaders: tuple[int, ...]
    passes: Ints
    steps: StepTable


def marked(process: ProcessRecord, sign: int) -> Marked:
    """The steps and batches of a process that has ``sign`` events, as these mark them."""
    thread = int(np.bincount(process.events["thread"][process.events["kind"] == sign]).argmax())
    events = process.events[process.events["thread"] == thread]
    events = events[np.argsort(events["start"], kind="stable")]
    marks = of_kinds(events, sign)
    loaders, others = _loaders(events, marks)
    passes, steps = _steps_of_updates(events, marks)
    if loaders:
        by_loader = _steps_of_loader(process, events, marks, loaders)
        if are_updates(process.names.get(loaders[0], "loader").get("batches"), len(by_loader[1]), len(steps)):
            loaders = ()
        else:
            passes, steps = by_loader
    return Marked(thread, events, marks, loaders, others, passes, steps)


def are_updates(of_pass: object, batches: int, updates: int) -> bool:
    """True if the steps of a training are its updates, although a DataLoader gave it its data.

    Args:
        of_pass: batches that a pass over the DataLoader has, as the record says; anything but a number: not known.
        batches: that a backward pass followed.
        updates: so far.
    """
    few = isinstance(of_pass, int) and of_pass <= _TAKEN_ONCE
    return few and updates >= max(_WITHOUT_BATCHES, _OF_ONE * batches)


def only_evaluates(batches: int, followed: int, marks: int) -> bool:
    """True if a loader's batches are no steps: only few, as the last of each validation, have steps behind them.

    Args:
        batches: of the loader.
        followed: those that a backward pass followed.
        marks: backward passes after them, before a batch of any loader.
    """
    return followed < PAIRED_SHARE * batches and marks >= _OF_ONE * followed


def real_updates(process: ProcessRecord, events: Events) -> Events:
    """Optimizer steps: without gradient clipping, which is recorded as OPTIMIZER too."""
    optimizers = of_kinds(events, kinds.OPTIMIZER)
    names = {int(id): process.names.text(int(id)) for id in np.unique(optimizers["arg"])}
    clips = [id for id, text in names.items() if "clip" in text]
    return optimizers[~np.isin(optimizers["arg"], clips)]


def _notes(lead: ProcessRecord, trains: list[ProcessRecord], sign: int) -> list[str]:
    notes = []
    if len(trains) > 1:
        who = f"rank {lead.rank}" if lead.rank is not None else f"process {lead.pid}"
        notes.append(f"{len(trains)} training processes were recorded; the ledger is that of {who}")
    if sign == kinds.OPTIMIZER:
        notes.append("no backward pass was seen: steps are told from optimizer steps")
    elif sign == kinds.BATCH_WAIT:
        notes.append("neither a backward pass nor an optimizer step was seen: each batch counts as a step")
    return notes


def _loaders(events: Events, marks: Events) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Loaders that feed training, and the others, divided by whether a backward pass follows their batches."""
    waits = of_kinds(events, kinds.BATCH_WAIT)
    seen = [int(id) for id in np.unique(waits["arg"])]
    # Each backward pass speaks for the batch that arrived last before it.
    latest = np.searchsorted(waits["start"], marks["start"], "right") - 1
    fed = np.unique(latest[latest >= 0])
    marks_of = waits["arg"][latest[latest >= 0]]
    votes = {}
    for id in seen:
        followed = _followed(waits[waits["arg"] == id], marks)
        behind = int(np.count_nonzero(marks_of == id))
        beside = only_evaluates(len(followed), int(np.count_nonzero(followed)), behind)
        votes[id] = 0 if beside else int(np.count_nonzero(waits["arg"][fed] == id))
    if not any(votes.values()):
        return (), tuple(seen)
    first = max(votes, key=lambda id: votes[id])
    steps = np.count_nonzero(_followed(waits[waits["arg"] == first], marks))
    loaders = [first]
    for id in seen:
        # Two loaders drawn from in turn: only the later one gets the votes, but both are followed alike.
        # A validation loader is followed only after the last batch of each pass.
        followed = _followed(waits[waits["arg"] == id], marks)
        if id != first and followed.mean() >= PAIRED_SHARE and np.count_nonzero(followed) >= PAIRED_SHARE * steps:
            loaders.append(id)
    return tuple(loaders), tuple(id for id in seen if id not in loaders)


def _followed(waits: Events, marks: Events) -> Flags:
    """Flags for the batches of one loader that are followed by a mark before its next batch."""
    return np.asarray(_marks_after(waits, marks) > 0)


def _marks_after(waits: Events, marks: Events) -> Ints:
    """The number of marks that follow each batch of one loader before its next batch."""
    if len(marks) and marks["kind"][0] == kinds.BATCH_WAIT:
        return np.ones(len(waits), np.int64)
    # By the end of the mark: an optimizer may call the backward pass, and so may begin before the wait.
    before = np.searchsorted(ends(marks), ends(waits), "right")
    return np.asarray(np.diff(np.append(before, len(marks))), np.int64)


def _without_lead(marks: Ints, work_end: Ints, epoch: Ints) -> tuple[Flags, Ints]:
    """The batches that were trained on, and the end of that work, if a loader draws each batch one step ahead.

    accelerate fetches the next batch before it hands out the current one: a pass begins with two consecutive batches
    and ends with a step that no batch precedes. Each batch is then followed by the step of the one before it.
    """
    followed, finished = marks > 0, work_end.copy()
    edges = np.flatnonzero(np.concatenate(([True], np.diff(epoch) != 0, [True]))) if len(epoch) else np.zeros(1, int)
    for first, behind in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        last = behind - 1
        if last == first or followed[first] or not followed[first + 1 : behind].all():
            continue
        usual = float(np.median(marks[first + 1 : last])) if last > first + 1 else 1.0
        finished[first:last] = work_end[first + 1 : behind]
        followed[first], followed[last] = True, marks[last] >= 2 * usual
    return followed, finished


def _steps_of_loader(
    process: ProcessRecord, events: Events, marks: Events, loaders: tuple[int, ...]
) -> tuple[Ints, StepTable]:
    """One step for each batch of the first loader that a backward pass followed."""
    loader = loaders[0]
    waits = of_kinds(events, kinds.BATCH_WAIT)
    waits = waits[waits["arg"] == loader]
    starts = of_kinds(events, kinds.ITER_START)
    passes = np.asarray(starts["start"][starts["arg"] == loader], np.int64)
    epoch = np.searchsorted(passes, waits["start"], "right") - 1
    if not len(passes) or (epoch < 0).any():
        # Iterators were made before the recording: a batch index that falls begins a pass.
        epoch = np.concatenate(([0], np.cumsum(np.diff(waits["a"]) <= 0)))
        passes = waits["start"][np.concatenate(([True], np.diff(epoch) > 0))]
    work = of_kinds(events, kinds.BACKWARD, kinds.OPTIMIZER)
    work_end = _last_end(work, waits)
    updates = real_updates(process, events)
    updated = np.diff(np.append(np.searchsorted(updates["start"], waits["start"]), len(updates))) > 0
    groups = grouped_steps(waits, marks, epoch) if len(loaders) == 1 else None
    if groups is not None:
        return passes, _grouped(groups, waits, epoch, updates)
    following = np.append(waits["start"][1:], work_end[-1:])
    same_pass = np.append(epoch[1:] == epoch[:-1], False)
    step_end = np.where(same_pass, following, work_end)
    own_end = work_end
    followed, work_end = _without_lead(_marks_after(waits, marks), work_end, epoch)
    rows = np.flatnonzero(followed)
    start, duration = waits["start"].astype(np.int64), np.maximum(step_end - waits["start"], waits["duration"])
    # A batch that is drawn one step ahead: its step begins when that of the batch before it has ended.
    ahead = rows[1:][(work_end != own_end)[rows[:-1]] & (np.diff(epoch[rows]) == 0)]
    start[ahead] = work_end[ahead - 1]
    duration[ahead] = np.maximum(work_end[ahead] - start[ahead], waits["duration"][ahead])
    wait = waits["duration"].astype(float)
    for paired in loaders[1:]:
        wait = wait + _waited(events, paired, waits["start"], step_end)
    return passes, StepTable(
        start_ns=start[rows],
        work_end_ns=work_end[rows],
        duration_s=duration[rows] / 1e9,
        wait_s=wait[rows] / 1e9,
        samples=batch_samples(waits)[rows],
        epoch=epoch[rows].astype(np.int64),
        updates=updated[rows].astype(np.int64),
    )


def _grouped(groups: GroupedSteps, waits: Events, epoch: Ints, updates: Events) -> StepTable:
    """Steps of batches that are drawn before the first of them is trained on."""
    updated = np.diff(np.append(np.searchsorted(updates["start"], groups.start_ns), len(updates))) > 0
    # The optimizer's step belongs to the work of the step before it.
    later = np.searchsorted(groups.start_ns, updates["start"], "right") - 1
    work_end = groups.work_end_ns.copy()
    np.maximum.at(work_end, later[later >= 0], ends(updates)[later >= 0])
    stop = np.maximum(groups.end_ns, np.where(groups.last > 0, work_end, 0))
    return StepTable(
        start_ns=groups.start_ns,
        work_end_ns=work_end,
        duration_s=(stop - groups.start_ns) / 1e9,
        wait_s=groups.wait_ns / 1e9,
        samples=batch_samples(waits)[groups.batch],
        epoch=epoch[groups.batch],
        updates=updated.astype(np.int64),
    )


def _last_end(work: Events, waits: Events) -> Ints:
    """Latest end of the work that began after each wait and before the next one; the wait's own end without any."""
    row = np.searchsorted(waits["start"], work["start"], "right") - 1
    latest = ends(waits).copy()
    np.maximum.at(latest, row[row >= 0], ends(work)[row >= 0])
    return latest


def _waited(events: Events, loader: int, begin: Ints, finish: Ints) -> Floats:
    """Time waited for ``loader`` in each interval, ns."""
    waits = of_kinds(events, kinds.BATCH_WAIT)
    waits = waits[waits["arg"] == loader]
    sums = np.concatenate(([0.0], np.cumsum(waits["duration"])))
    return np.asarray(
        sums[np.searchsorted(waits["start"], finish)] - sums[np.searchsorted(waits["start"], begin)], np.float64
    )


def _steps_of_updates(events: Events, marks: Events) -> tuple[Ints, StepTable]:
    """Without a loader: one step for each optimizer step (or backward pass) after the one before."""
    updates = of_kinds(events, kinds.OPTIMIZER)
    if not len(updates):
        updates = marks
    finished = ends(updates)
    if np.any(marks["kind"] == kinds.BACKWARD):
        # Several optimizers, or clipping, between two backward passes are one step.
        turn = np.searchsorted(ends(marks), finished, "right")
        finished = finished[np.append(np.diff(turn) > 0, True)]
    zeros = np.zeros(len(finished), np.int64)
    first = events["start"][:1] if not len(marks) else marks["start"][:1]
    start = np.concatenate((first, finished[:-1])).astype(np.int64)
    return zeros[:0], StepTable(
        start_ns=start,
        work_end_ns=finished,
        duration_s=(finished - start) / 1e9,
        wait_s=zeros.astype(float),
        samples=_model_inputs(events, start, finished),
        epoch=zeros,
        updates=zeros + 1,
    )


def _model_inputs(events: Events, begin: Ints, finish: Ints) -> Ints:
    """Samples that the training's largest module was given in each step; 0 if unknown.

    A loop that calls layers by themselves, or a network twice, gives them the same batch several times: of the modules
    that are given as many samples in a call, the one with the fewest calls in a step counts.
    """
    inputs, forwards = of_kinds(events, kinds.INPUT), of_kinds(events, kinds.FORWARD)
    if not len(inputs):
        return np.zeros(len(begin), np.int64)
    modules, largest = sorted(set(inputs["arg"].tolist())), largest_module(inputs, forwards)
    usual = {id: float(np.median(inputs["a"][inputs["arg"] == id])) for id in modules}
    given = {id: _summed(inputs[inputs["arg"] == id], begin, finish) for id in modules if usual[id] == usual[largest]}
    found = given.pop(largest)
    for other in given.values():
        if 2 * np.count_nonzero(other) >= len(other):
            found = np.where((other > 0) & (found > 0), np.minimum(found, other), found)
    # The step after an evaluation follows a batch of its DataLoader, so that its input was not noted.
    known = found > 0
    enough = 0 < _MOSTLY * len(known) <= np.count_nonzero(known)
    return np.where(known, found, int(np.median(found[known]))) if enough else found


def largest_module(inputs: Events, forwards: Events) -> int:
    """The module that takes longest of those with inputs: a loss is an outermost module too, the network is not it."""
    of_module = np.unique(inputs["arg"])
    return int(max(of_module, key=lambda id: int(forwards["duration"][forwards["arg"] == id].sum())))


def _summed(inputs: Events, begin: Ints, finish: Ints) -> Ints:
    sums = np.concatenate(([0], np.cumsum(inputs["a"])))
    at = np.sort(inputs["start"])
    return np.asarray(sums[np.searchsorted(at, finish)] - sums[np.searchsorted(at, begin)], np.int64)


def _first_step_end(process: ProcessRecord, events: Events, marks: Events, loaders: tuple[int, ...]) -> int:
    """End of the first optimizer step after the first backward pass, of that pass when a batch comes between."""
    first_end = int(ends(marks)[0])
    waits = of_kinds(events, kinds.BATCH_WAIT)
    waits = waits["start"][np.isin(waits["arg"], loaders) & (waits["start"] >= first_end)]
    updates = real_updates(process, events)
    # By their ends: a closure runs the backward pass inside the optimizer step.
    updates = updates[ends(updates) >= first_end]
    if len(updates) and (not len(waits) or updates["start"][0] < waits[0]):
        return int(ends(updates)[0])
    return first_end
