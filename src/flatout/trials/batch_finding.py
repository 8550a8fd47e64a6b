"""``flatout batch-size``: the unchanged training at one batch size after the other, under guards."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from flatout.compare.speed import Speed
from flatout.errors import CommandError, Interrupted, UsageError
from flatout.measure.build import build_view
from flatout.measure.measured_run import MeasuredRun
from flatout.predict.learning_rate import scaling
from flatout.record import Run
from flatout.runner import Bounds
from flatout.trials import batch_search as search
from flatout.trials import first_look
from flatout.trials.batch_sizes import BatchSizes, MemoryLine, SizeRuns, memory_line
from flatout.trials.budget import NEEDED_STEPS, Budget, OutOfTime, as_option
from flatout.trials.fix_runs import Runner
from flatout.trials.guards import LEAST_MEMORY, host_memory
from flatout.trials.outcome import GUARDED, OK, OUT_OF_MEMORY, REFUSED, TOO_SHORT, TrialRun
from flatout.trials.progress import ProgressLog
from flatout.trials.trial_run import TrialSetup, run_once
from flatout.trials.try_result import Memory
from flatout.units import counted, duration, rate, size

_STEPS_A_RUN = 12  # at least: a large batch has fewer steps in the same time
_LONGEST_RUN_S = 120.0  # measured part of one run
_WORDS = {OUT_OF_MEMORY: "ran out of memory", GUARDED: "was ended by a guard", TOO_SHORT: "made too few steps"}


@dataclass(frozen=True)
class SizeOptions:
    """Limits that the user sets.

    Attributes:
        budget_s: for everything.
        least: smallest batch size.
        most: largest batch size; None: no limit.
        bounds: of each run; None: as long as 80 steps of the command's own size take, within bounds.
        first_step_within_s: a run without a training step by then is ended; None: found by the first run.
        rule: of the learning rate; None: by the optimizer.
    """

    budget_s: float = 300.0
    least: int = 1
    most: int | None = None
    bounds: Bounds | None = None
    first_step_within_s: float | None = None
    rule: str | None = None


@dataclass(frozen=True)
class _Seen:
    """What the first run shows of the training."""

    size: int
    samples: int | None = None
    drop_last: bool = False
    optimizer: str | None = None
    ranks: int = 1
    device_total: int | None = None


class Finding:
    """One search, from the first look to the knee."""

    def __init__(
        self,
        setup: TrialSetup,
        options: SizeOptions,
        log: ProgressLog,
        *,
        run_once: Runner = run_once,
        clock: Callable[[], float] = time.monotonic,
        view: Callable[[Run], MeasuredRun | None] = build_view,
    ) -> None:
        """Run nothing yet.

        Args:
            setup: of the runs.
            options: the user's limits.
            log: of the progress.
            run_once: makes a run.
            clock: seconds; the one that ``run_once`` uses for its deadline.
            view: reads a run.
        """
        self.setup, self.options, self.log = setup, options, log
        self._run_once, self._view = run_once, view
        self.budget = Budget(options.budget_s, clock)
        self.sizes: list[SizeRuns] = []
        self.seen = _Seen(0)
        self.limit = self.ended = ""
        self._window_s = 0.0
        self._host_total = _host_room()

    def run(self) -> BatchSizes:
        """Measure, and find the knee.

        Raises:
            CommandError: the command fails, trains no step, or its batch size cannot be set.
            UsageError: the budget is too small for two runs.
        """
        interrupted = None
        try:
            self._look()
            self._search()
        except (Interrupted, KeyboardInterrupt) as stop:
            interrupted = stop if isinstance(stop, Interrupted) else Interrupted()
            self.ended = f"Ended early by {interrupted}."
        except OutOfTime:
            self.ended = f"The budget of {duration(self.options.budget_s)} is used up."
        if not search.counted(self.sizes):
            if interrupted is not None:
                raise interrupted.before("a batch size was measured")
            raise UsageError(self._too_small(0.0))
        for one in self.sizes:
            if not one.runs and not one.why:
                one.why = "ended early" if interrupted else "the budget was used up"
        return replace(self._result(), interrupted=interrupted)

    # --- the first look ---

    def _look(self) -> None:
        """Run the unchanged training once: its batch size, how long a step takes, how long its data is."""
        self.log.say("the training as it is: a first look")
        found = first_look.look(
            self.setup, self._ran, self.options.bounds, self.options.first_step_within_s, self.budget, self.log
        )
        speed = first_look.speed_seen(self.setup, found, "the training")
        self.seen = self._read(found, speed)
        if not self.options.least <= self.seen.size <= (self.options.most or math.inf):
            raise UsageError(
                f"the batch size of the command is {self.seen.size}: --least and --most must leave room for it, "
                f"and are {self.options.least} and {self.options.most or 'not given'}"
            )
        given = self.options.bounds or Bounds()
        step_s = speed.ledger.window_s / max(speed.ledger.steps.count, 1)
        fixed_s = given.seconds or (given.steps * step_s if given.steps else None)
        self._window_s = self.budget.plan_runs(found.wall_s, speed.ledger.window_s, step_s, fixed_s)
        if not self.budget.room(2):
            raise UsageError(self._too_small(found.wall_s))
        later_s = self.options.first_step_within_s or first_look.later_first_step_s(found, speed)
        self.setup = replace(self.setup, bounds=Bounds(seconds=self._window_s, first_step_within_s=later_s))
        self.log.say(
            f"batch size {self.seen.size}, {speed.rate:,.1f} {speed.unit}; a run measures {duration(self._window_s)} "
            f"or {_STEPS_A_RUN} steps and takes about {duration(self.budget.run_s)}"
        )

    def _read(self, found: TrialRun, speed: Speed) -> _Seen:
        """What the run shows.

        Raises:
            CommandError: nothing tells the batch size.
        """
        view = self._view(found.run) if found.run is not None else None
        loading = view.loading if view is not None else None
        written = self._written()
        own = (loading.settings.batch_size if loading else None) or written
        own = own or (round(speed.batch) if speed.batch else None)
        if own is None:
            raise CommandError(
                "the batch size is not known: no DataLoader fed the steps, and the command does not name it. "
                + _name_it("")
            )
        if view is None:
            return _Seen(own)
        ranks = view.ranks.count if view.ranks is not None else 1
        total = view.usage.gpu_memory_total_bytes
        return _Seen(
            own,
            loading.settings.dataset_len if loading else None,
            bool(loading and loading.settings.drop_last),
            view.process.optimizer,
            ranks,
            total * ranks if total else None,
        )

    def _written(self) -> int | None:
        """The batch size that the command or its config names."""
        locations = self.setup.locations
        value = locations.present("batch_size") if locations is not None else None
        try:
            return int(value) if value is not None else None
        except ValueError:
            raise UsageError(f"batch_size is {value!r} in the command: a whole number is needed") from None

    # --- the search ---

    def _search(self) -> None:
        """Up while it gets faster, down while it stays as fast, then between, and again where it is unclear."""
        if not self._measure(self.seen.size):
            raise CommandError(f"the training cannot be measured again: {self.sizes[0].why}")
        while (larger := search.next_larger(self.sizes, self._most())) is not None:
            self._measure(larger)
        self.limit = self._why_no_larger()
        while (smaller := search.next_smaller(self.sizes, self.options.least)) is not None:
            self._measure(smaller)
        self._repeat()
        while (between := search.next_between(self.sizes)) is not None:
            self._measure(between)
            self._repeat()

    def _most(self) -> int | None:
        """The largest size to measure: the user's limit, and that of the data."""
        limits = [self.options.most] if self.options.most else []
        if self.seen.samples is not None:
            fits = self.seen.samples // (self.seen.ranks * NEEDED_STEPS)
            limits.append(max(fits, self.seen.size))
        return min(limits, default=None)

    def _repeat(self) -> None:
        """More runs, in turn, of the sizes that may be the knee."""
        turn = 0
        while chosen := search.unclear(self.sizes):
            if not self.budget.room(len(chosen)):
                self.ended = f"The budget of {duration(self.options.budget_s)} had no room to repeat runs."
                return
            for one in chosen if turn % 2 else reversed(chosen):
                if not self._measure(one.size):
                    return
            turn += 1

    def _measure(self, number: int) -> bool:
        """One run with this batch size; True if it counts."""
        one = next((known for known in self.sizes if known.size == number), None)
        if one is None:
            one = SizeRuns(number)
            self.sizes.append(one)
            if why := self._refused(number):
                one.why = why
                self.log.say(f"batch size {number}: not run, {why}")
                return False
        setup = replace(self.setup, bounds=self._bounds(number))
        run = self._ran(setup, number)
        if run.outcome == REFUSED and self._located():
            # The script does not pass its option on to the DataLoader: set it there.
            self.setup = replace(self.setup, locations=None)
            run = self._ran(replace(self.setup, bounds=setup.bounds), number)
        if run.outcome == REFUSED:
            raise CommandError(f"the batch size cannot be set from outside: {run.detail}. {_name_it(self.seen.size)}")
        if run.run is not None:
            now = peak_memory(run.run)
            one.memory = replace(
                one.memory,
                host_bytes=_larger(one.memory.host_bytes, now.host_bytes),
                device_bytes=_larger(one.memory.device_bytes, now.device_bytes),
            )
        if run.outcome != OK or run.speed is None:
            one.failed, one.why = run, f"{_WORDS.get(run.outcome, 'failed')}: {run.detail}"
            self.log.say(f"batch size {number}: {one.why}")
            return False
        one.runs.append(run)
        again = f", run {len(one.runs)}" if len(one.runs) > 1 else ""
        self.log.say(f"batch size {number}{again}: {rate(one.speeds[-1].rate)}, {_memory(one)}")
        return True

    def _refused(self, number: int) -> str:
        """Why this size must not be run; empty: it may."""
        line = self._memory_line()
        measured = search.counted(self.sizes)
        if line is not None and line.of == "host" and line.total_bytes and number > measured[-1].size:
            needed = line.at(number)
            if needed > line.total_bytes:
                return f"{size(needed)} of host memory predicted, {size(line.total_bytes)} may be used"
        step_s = self._step_s(number)
        if step_s * NEEDED_STEPS > _LONGEST_RUN_S:
            return f"a step would take about {duration(step_s)}"
        return ""

    def _bounds(self, number: int) -> Bounds:
        """Of one run: as long as all, and longer if that were too few steps."""
        given = self.options.bounds
        if given is not None and given.steps:
            return replace(self.setup.bounds, steps=given.steps, seconds=given.seconds)
        needed_s = _STEPS_A_RUN * self._step_s(number)
        grown = max(number / self.seen.size, 1.0)
        within_s = self.setup.bounds.first_step_within_s * (grown if not self.options.first_step_within_s else 1.0)
        return Bounds(seconds=min(max(self._window_s, needed_s), _LONGEST_RUN_S), first_step_within_s=within_s)

    def _step_s(self, number: int) -> float:
        """The time of a step at most: as the nearest smaller size's, in proportion."""
        nearest = min(search.counted(self.sizes), key=lambda one: abs(one.size - number), default=None)
        return nearest.step_s * number / nearest.size if nearest is not None else 0.0

    def _ran(self, setup: TrialSetup, number: int | None = None) -> TrialRun:
        """One run; the end of the budget ends everything."""
        left_s = self.budget.left_s
        if left_s <= 1.0 or (number is not None and not self.budget.room(1)):
            raise OutOfTime
        bounds = replace(setup.bounds, first_step_within_s=min(setup.bounds.first_step_within_s, left_s + 1))
        changed = number is not None and number != self.seen.size
        settings: dict[str, Any] = {"batch_size": number} if changed else {}
        run = self._run_once(replace(setup, bounds=bounds), settings, deadline_s=self.budget.deadline_s)
        if run.outcome == GUARDED and self.budget.left_s <= 0:
            raise OutOfTime
        if run.outcome == OK and number is not None:
            self.budget.learn(run.wall_s)
        return run

    def _located(self) -> bool:
        locations = self.setup.locations
        return locations is not None and bool(locations.located({"batch_size": 0}))

    # --- the result ---

    def _why_no_larger(self) -> str:
        """Why the way up ended."""
        largest = max(self.sizes, key=lambda one: one.size)
        if largest.outcome != OK:
            return f"batch size {largest.size} {'was not run: ' if not largest.failed else ''}{largest.why}"
        if search.flat_doublings(self.sizes) >= 1 and search.next_larger(self.sizes, None) is None:
            return "samples/s had stopped growing"
        most = self._most()
        if self.options.most == most:
            return f"--most {most} ends the search"
        return f"a pass over the {self.seen.samples:,} samples would have fewer than {counted(NEEDED_STEPS, 'step')}"

    def _memory_line(self) -> MemoryLine | None:
        return memory_line(search.counted(self.sizes), self._host_total, self.seen.device_total)

    def _result(self) -> BatchSizes:
        knee, best = search.knee_of(self.sizes), search.best_of(self.sizes)
        measured = search.counted(self.sizes)
        below = [one for one in measured if one.size < knee.size]
        doubtful = [one for one in [*below, knee] if one is not best and search.in_doubt(one, best)]
        line = scaling(knee.size / self.seen.size, self.seen.optimizer, self.options.rule)
        changed = knee.size != self.seen.size
        return BatchSizes(
            command=self.setup.command,
            own=self.seen.size,
            sizes=tuple(sorted(self.sizes, key=lambda one: one.size)),
            knee=knee,
            best=best,
            certain=not doubtful,
            limit=self.limit or self.ended,
            larger_gain=search.flat_doublings(self.sizes) == 0 and len(measured) > 1,
            scaling=line,
            optimizer=self.seen.optimizer,
            samples=self.seen.samples,
            drop_last=self.seen.drop_last,
            ranks=self.seen.ranks,
            settings={"batch_size": knee.size, "lr_factor": line.factor} if changed else {},
            located=self.setup.locations if self._located() else None,
            memory_line=self._memory_line(),
            ended=self.ended,
            isolation=self.setup.isolation.describe(),
            seconds=self.budget.spent_s,
        )

    def _too_small(self, look_s: float) -> str:
        return (
            f"--budget {duration(self.options.budget_s)} is too small for two batch sizes: the look took "
            f"{duration(look_s)}, and a run takes {duration(self.budget.run_s)}; "
            f"give at least {as_option(look_s + 4 * self.budget.run_s)}"
        )


def _name_it(own: int | str) -> str:
    return (
        f"If the command has an option for it, write it with its present value, such as --batch-size {own or 32}; "
        "if that is not its name, add --setting batch_size=--its-name"
    )


def _memory(one: SizeRuns) -> str:
    held = [
        f"{size(found)} {where} memory"
        for found, where in ((one.memory.device_bytes, "GPU"), (one.memory.host_bytes, "host"))
        if found
    ]
    return " and ".join(held) or "memory not measured"


def peak_memory(run: Run) -> Memory:
    """The most in use at a time: resident memory of all processes, and what is used of all GPUs.

    Resident memory is in every sample, unlike proportional shares, which short runs may lack.
    """
    host, device = 0, 0
    for sample in run.system():
        host = max(host, sum(entry["rss"] for entry in sample.get("processes") or ()))
        device = max(device, sum(gpu.get("memory_used") or 0 for gpu in sample.get("gpus") or ()))
    return Memory(host or None, device or None)


def _larger(a: int | None, b: int | None) -> int | None:
    return max((one for one in (a, b) if one is not None), default=None)


def _host_room() -> int | None:
    """Host bytes that a training may hold without the guard ending it; None: not known."""
    left, total = host_memory()
    return round(left - LEAST_MEMORY * total) if left is not None and total else None
