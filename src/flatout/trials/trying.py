"""``flatout try``: candidates against the unchanged training, in rounds that share the runs without them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from flatout.compare.crowding import crowded
from flatout.compare.speed import alike
from flatout.errors import Interrupted, RecordError, UsageError
from flatout.measure.crowding import Contention
from flatout.remedies.proposal import IDENTICAL
from flatout.runner import Bounds
from flatout.trials import first_look
from flatout.trials.budget import Budget, OutOfTime, as_option
from flatout.trials.candidates import Candidate
from flatout.trials.fix_runs import Runner
from flatout.trials.outcome import GUARDED, OK, REFUSED, TrialRun
from flatout.trials.pairs import Pairs, seed_of
from flatout.trials.printed import last_lines
from flatout.trials.progress import ProgressLog
from flatout.trials.sequential import MOST_PAIRS, decided
from flatout.trials.trial_run import LOG, TrialSetup, run_once
from flatout.trials.try_result import UNMEASURED, Judged, TryResult
from flatout.trials.verdicts import LEAST_PAIRS, diverges, judge
from flatout.units import counted, duration, factor

_LONGEST = 50  # characters of a title in a line of progress
_FEW = 2  # candidates


@dataclass(frozen=True)
class TryOptions:
    """Limits that the user sets.

    Attributes:
        semantic_class: what a candidate may change in the training.
        budget_s: for everything.
        bounds: of each run; None: as long as 80 steps take, within bounds.
        first_step_within_s: a run without a training step by then is ended; None: found by the first run.
    """

    semantic_class: str = IDENTICAL
    budget_s: float = 300.0
    bounds: Bounds | None = None
    first_step_within_s: float | None = None


@dataclass
class _Entry:
    """A candidate with its runs."""

    candidate: Candidate
    setup: TrialSetup
    pairs: Pairs = field(default_factory=Pairs)
    printed: tuple[str, ...] = ()
    stopped: str = ""

    @property
    def name(self) -> str:
        """Its title, short enough for a line of progress."""
        title = self.candidate.title
        return title if len(title) <= _LONGEST else f"{title[: _LONGEST - 3]}..."

    @property
    def factor(self) -> float:
        """Of its pairs so far."""
        ratio = self.pairs.ratio()
        return ratio.factor if ratio is not None else 0.0


class Trying:
    """One call, from the first look to the verdicts."""

    def __init__(
        self,
        setup: TrialSetup,
        options: TryOptions,
        candidates: Sequence[Candidate],
        log: ProgressLog,
        *,
        run_once: Runner = run_once,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Run nothing yet.

        Args:
            setup: of the runs without the candidates.
            options: the user's limits.
            candidates: one at least.
            log: of the progress.
            run_once: makes a run.
            clock: seconds; the one that ``run_once`` uses for its deadline.
        """
        self.options, self.log, self._run_once = options, log, run_once
        self.budget = Budget(options.budget_s, clock)
        self.setup = replace(setup, changes=candidates[0].taken_out)
        self.entries = [_Entry(one, _with(setup, one)) for one in candidates]
        self.unchanged: list[TrialRun] = []
        self.contention: list[Contention | None] = []
        self._looked, self.ended = False, ""

    def run(self) -> TryResult:
        """Measure and judge.

        Raises:
            CommandError: the unchanged command fails, or trains no step.
            UsageError: the budget is too small for one pair of runs.
        """
        interrupted = None
        try:
            self._look()
            self._rounds()
        except (Interrupted, KeyboardInterrupt) as stop:
            interrupted = stop if isinstance(stop, Interrupted) else Interrupted()
            if not self.unchanged:
                raise interrupted.before("the first run was complete") from None
            self.ended = f"Ended early by {interrupted}."
        except OutOfTime:
            if not self._looked:
                raise self.budget.over_before("the first look had ended") from None
            self.ended = f"The budget of {duration(self.options.budget_s)} is used up."
        judged = sorted((self._judged(entry) for entry in self.entries), key=lambda one: one.rank)
        speeds = [run.speed for run in self.unchanged if run.speed is not None]
        return TryResult(
            command=self.setup.command,
            candidates=tuple(judged),
            before=statistics.median(speed.rate for speed in speeds) if speeds else None,
            unit=speeds[0].unit if speeds else "samples/s",
            ended=self.ended,
            isolation=self.setup.isolation.describe(),
            seconds=self.budget.spent_s,
            taken_out=bool(self.setup.changes.files),
            interrupted=interrupted,
            crowded=crowded(self.contention),
        )

    # --- the first look ---

    def _look(self) -> None:
        """Run the unchanged training once, which says how long the runs of pairs must be."""
        self.log.say(f"the training without {'it' if len(self.entries) == 1 else 'them'}: a first look")
        given = self.options.bounds or Bounds()
        look = first_look.look(
            self.setup,
            lambda setup: self._made(setup, None),
            self.options.bounds,
            self.options.first_step_within_s,
            self.budget,
            self.log,
        )
        self._looked = True
        if look.outcome == REFUSED and self.setup.changes.files:
            self.entries[0].pairs.failed = look  # the change that was taken out for this run makes no difference
            return
        speed = first_look.speed_seen(self.setup, look, "the training without the change")
        ledger = speed.ledger
        step_s = ledger.window_s / max(ledger.steps.count, 1)
        fixed_s = given.seconds or (given.steps * step_s if given.steps else None)
        window_s = self.budget.plan_runs(look.wall_s, ledger.window_s, step_s, fixed_s, speed.error)
        runs = 1 + len(self.entries)
        enough = as_option(self.budget.spent_s + 2.2 * runs * self.budget.run_s)
        self._check_room(look.wall_s, enough)
        self.log.say(
            f"{speed.rate:,.1f} {speed.unit}; each run of a pair measures "
            f"{counted(given.steps, 'step') if given.steps else duration(window_s)} "
            f"and takes about {duration(self.budget.run_s)}"
        )
        left_out = [entry for entry in self.entries if entry.stopped]
        if left_out:
            self.log.say(f"the budget has room for {counted(runs - 1 - len(left_out), 'candidate')}: --budget {enough}")
        elif not self.budget.room(2 * runs):
            self.log.say(
                f"the budget may have room for one pair of runs only, and a proof needs two: --budget {enough}"
            )
        bounds = Bounds(
            steps=given.steps,
            seconds=None if given.steps else window_s,
            first_step_within_s=self.options.first_step_within_s or first_look.later_first_step_s(look, speed),
        )
        steps = given.steps or max(int(window_s / step_s), 10)
        self.setup = replace(self.setup, bounds=bounds, steps=steps)
        for entry in self.entries:
            entry.setup = replace(entry.setup, bounds=bounds, steps=steps)

    def _check_room(self, look_s: float, enough: str) -> None:
        """Leave out the candidates that no run is left for.

        Args:
            look_s: duration of the first look.
            enough: a budget for all of them.

        Raises:
            UsageError: no candidate has one.
        """
        fitting = int(self.budget.left_s / self.budget.run_s) - 1
        if fitting < 1:
            raise UsageError(
                f"--budget {duration(self.options.budget_s)} is too small for one pair of runs: the look took "
                f"{duration(look_s)}, and 2 runs take {duration(2 * self.budget.run_s)} more; give at least {enough}, "
                f"for two pairs of {'it' if len(self.entries) == 1 else 'each'}"
            )
        self._stop(self.entries[fitting:], f"the budget had no run left for it; give at least {enough}")

    # --- rounds ---

    def _rounds(self) -> None:
        """A run without and a run with each candidate; after each round the slower half is left out.

        One that was left out comes back if those before it fell behind it.
        """
        left, number = [entry for entry in self.entries if entry.pairs.failed is None and not entry.stopped], 0
        while left:
            if number and not self.budget.room(1 + len(left)):
                self._stop(left, "the budget had no room for another pair")
                shortage, budget = self.budget.shortage(1 + len(left)), duration(self.options.budget_s)
                self.ended = f"The budget of {budget} has no room for another pair: {shortage}."
                return
            if not self._round(left, number):
                return
            number += 1
            left = self._halved([entry for entry in left if self._open(entry)]) or self._overtaking()

    def _round(self, left: Sequence[_Entry], number: int) -> bool:
        """One run without, one with each: in the other direction each time, so that drift affects all equally.

        Returns:
            False if the run without them failed, which ends all.
        """
        order: list[_Entry | None] = [None, *left]
        made: dict[int, TrialRun] = {}
        try:
            for entry in order if number % 2 == 0 else reversed(order):
                self.log.say(f"pair {number + 1}: {entry.name if entry else 'unchanged'}")
                setup = entry.setup if entry else self.setup
                run = self._made(replace(setup, seed=seed_of(number)), entry)
                if entry is None and run.outcome != OK:
                    self._without_failed(left, run)
                    return False
                if run.outcome == OK:
                    made[id(entry)] = run
                elif entry is not None:
                    entry.pairs.failed = run
                    self.log.say(f"{entry.name}: {run.detail}")
                    if len(left) == 1:  # no run without it is needed any more
                        return True
        finally:  # what was run counts, also where the budget ends before the others
            self._add_pairs(left, made)
        return True

    def _add_pairs(self, left: Sequence[_Entry], made: Mapping[int, TrialRun]) -> None:
        """Those of a round, from the runs that were made, by the id of their entry."""
        without = made.get(id(None))
        if without is None:
            return
        self.unchanged.append(without)
        for entry in left:
            if entry.pairs.failed is None and id(entry) in made:
                self._add_pair(entry, without, made[id(entry)])

    def _without_failed(self, left: Sequence[_Entry], run: TrialRun) -> None:
        """Candidates with a pair are judged by it; of the others nothing is known."""
        self._stop(left, f"a run without it failed: {run.detail}")
        for entry in left:
            if not entry.pairs.a and entry.pairs.failed is None:
                entry.pairs.failed, entry.pairs.failed_without = run, True

    def _add_pair(self, entry: _Entry, without: TrialRun, with_it: TrialRun) -> None:
        assert without.speed is not None and with_it.speed is not None, "both count"
        try:
            alike(without.speed, with_it.speed)
        except RecordError as error:
            entry.pairs.failed = replace(with_it, outcome=UNMEASURED, detail=str(error))
            return
        entry.pairs.a.append(without)
        entry.pairs.b.append(with_it)
        self.log.say(f"{entry.name}: {factor(entry.factor)} after {counted(len(entry.pairs.a), 'pair')}")

    def _open(self, entry: _Entry) -> bool:
        """True if another pair could change the verdict."""
        ratio = entry.pairs.ratio()
        if entry.pairs.failed is not None or ratio is None or diverges(entry.pairs):
            return False
        return ratio.pairs < LEAST_PAIRS or (ratio.pairs < MOST_PAIRS and not decided(ratio))

    def _halved(self, left: list[_Entry]) -> list[_Entry]:
        """The faster half (successive halving: Jamieson and Talwalkar 2016); of two, both get their second pair."""
        if len(left) <= _FEW and any(len(entry.pairs.a) < LEAST_PAIRS for entry in left):
            return left
        ordered = sorted(left, key=lambda entry: -entry.factor)
        kept = ordered[: math.ceil(len(ordered) / 2)]
        self._stop(ordered[len(kept) :], f"{kept[0].name} was faster" if kept else "")
        return kept

    def _overtaking(self) -> list[_Entry]:
        """The fastest of those that were left out, if it is now ahead of all others."""
        measured = [entry for entry in self.entries if entry.pairs.a and entry.pairs.failed is None]
        first = max(measured, key=lambda entry: entry.factor, default=None)
        if first is None or not first.stopped or not self._open(first):
            return []
        first.stopped = ""
        self.log.say(f"{first.name} is ahead again")
        return [first]

    @staticmethod
    def _stop(entries: Sequence[_Entry], why: str) -> None:
        for entry in entries:
            entry.stopped = why

    def _made(self, setup: TrialSetup, entry: _Entry | None) -> TrialRun:
        """One run; the end of the budget ends everything."""
        left_s = self.budget.left_s
        if left_s <= 1.0:
            raise OutOfTime
        log = setup.folder / LOG
        begin = log.stat().st_size if log.exists() else 0
        bounds = replace(setup.bounds, first_step_within_s=min(setup.bounds.first_step_within_s, left_s + 1))
        settings = entry.candidate.settings if entry else {}
        run = self._run_once(replace(setup, bounds=bounds), settings, deadline_s=self.budget.deadline_s)
        if run.outcome == GUARDED and self.budget.left_s <= 0:
            raise OutOfTime
        if run.speed is not None:
            self.contention.append(run.speed.contention)
        if run.outcome == OK:
            self.budget.learn(run.wall_s)
        elif entry is not None and run.outcome != REFUSED:
            entry.printed = last_lines(log, begin)
        return run

    def _judged(self, entry: _Entry) -> Judged:
        files = tuple(entry.candidate.patched.names(Path.cwd()))
        found = judge(
            entry.candidate.title,
            files,
            entry.pairs,
            self.options.semantic_class,
            entry.stopped,
            entry.candidate.settings,
        )
        return replace(found, printed=entry.printed)


def _with(setup: TrialSetup, candidate: Candidate) -> TrialSetup:
    """The setup of a candidate's runs."""
    command = candidate.command or setup.command
    locations = setup.locations
    if locations is not None:
        locations = None if candidate.command else locations
    return replace(
        setup, command=command, locations=locations, environment=candidate.environment, changes=candidate.files
    )
