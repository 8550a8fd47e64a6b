"""The runs of a fix: each within the bounds of the trials and what is left of the budget."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from flatout.compare.ratio import Ratio
from flatout.measure.crowding import Contention
from flatout.measure.thresholds import NOISE_SHARE
from flatout.probe.settings import combined
from flatout.runner import Bounds
from flatout.trials.budget import LEAST_S, LEAST_STEPS, STEPS, Budget, OutOfTime
from flatout.trials.fix_options import Options
from flatout.trials.outcome import GUARDED, OK, TrialRun
from flatout.trials.progress import ProgressLog
from flatout.trials.sequential import MOST_PAIRS, pairs_needed
from flatout.trials.shared_samples import Pace
from flatout.trials.trial_run import TrialSetup
from flatout.units import duration


class Runner(Protocol):
    """Makes one run of a trial; see ``run_once``."""

    def __call__(self, setup: TrialSetup, settings: Mapping[str, Any], deadline_s: float = ...) -> TrialRun: ...


class FixRuns:
    """Makes runs, and says how many more have room.

    Attributes:
        setup: of the runs; its bounds change with what steps and the budget need.
        budget: of the whole fix.
        contention: of each run; None: not measured.
    """

    def __init__(
        self,
        setup: TrialSetup,
        options: Options,
        log: ProgressLog,
        run_once: Runner,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Run nothing yet.

        Args:
            setup: of the runs.
            options: the user's limits.
            log: of the fix's progress.
            run_once: makes a run.
            clock: seconds; the one that ``run_once`` uses for its deadline.
        """
        self.setup, self._options, self._log, self._run_once = setup, options, log, run_once
        self.budget = Budget(options.budget_s, clock)
        self.contention: list[Contention | None] = []

    def look(self, settings: Mapping[str, Any], bounds: Bounds, experiments: bool) -> TrialRun:
        """A run within these bounds, which is diagnosed."""
        return self._noted(self._run_once(replace(self.setup, bounds=bounds, experiments=experiments), settings))

    def run(self, settings: Mapping[str, Any], seed: int = 0) -> TrialRun:
        """One run of a trial, from this seed where the training sets none.

        Raises:
            OutOfTime: the budget ended before it did.
            Interrupted: it was interrupted by the user.
        """
        left_s = self.budget.left_s
        if left_s <= 1.0:
            raise OutOfTime
        bounds = replace(self.setup.bounds, first_step_within_s=min(self.setup.bounds.first_step_within_s, left_s + 1))
        run = self._noted(
            self._run_once(replace(self.setup, bounds=bounds, seed=seed), settings, deadline_s=self.budget.deadline_s)
        )
        if run.outcome == GUARDED and self.budget.left_s <= 0:
            raise OutOfTime
        if run.outcome == OK:
            self.budget.learn(run.wall_s)
        return run

    def _noted(self, run: TrialRun) -> TrialRun:
        if run.speed is not None:
            self.contention.append(run.speed.contention)
        return run

    def unmeasured(
        self, kept: Mapping[str, Any], settings: Mapping[str, Any], seconds: float, over: Callable[[], bool]
    ) -> TrialRun:
        """A run on top of what was kept, until ``over`` says so."""
        bounds = replace(self.setup.bounds, seconds=seconds, steps=None, over=over)
        with_kept = combined(kept, settings)
        return self._run_once(replace(self.setup, bounds=bounds), with_kept, deadline_s=self.budget.deadline_s)

    def bound(self, bounds: Bounds, window_s: float, step_s: float) -> None:
        """Measure this long from now on, or the steps in it."""
        steps = max(int(window_s / step_s), 10) if step_s > 0 else STEPS
        self.setup = replace(self.setup, bounds=replace(bounds, seconds=window_s), steps=steps)

    def lengthen(self, acts_later: bool = False) -> bool:
        """Double the measured time of the runs if the budget has room for a pair of such runs.

        Args:
            acts_later: a setting takes effect later than a run ended; else it held too few steps.
        """
        bounds = self.setup.bounds
        if bounds.seconds is None or self.budget.left_s < 2 * (self.budget.run_s + bounds.seconds):
            return False
        self.budget.run_s += bounds.seconds
        self.setup = replace(self.setup, bounds=replace(bounds, seconds=2 * bounds.seconds), steps=2 * self.setup.steps)
        why = "calls are left out from the third on" if acts_later else "too few steps to compare"
        self._log.say(f"{why}: each run measures {duration(2 * bounds.seconds)} from now on")
        return True

    def room_for_pair(self, runs: int, kept: bool) -> bool:
        """True if a pair fits, if need be of shorter runs: it decides more than the time that would be left over.

        Args:
            runs: of the pair.
            kept: a remedy was kept before, so that a proof has to fit too.
        """
        if self.budget.room_for_trial(runs, kept):
            return True
        window_s = self.setup.bounds.seconds
        if kept or window_s is None or self._options.seconds is not None:
            return False
        steps_s = window_s / self.setup.steps * LEAST_STEPS
        shorter_s = self.budget.shorter_runs_s(window_s, runs, max(LEAST_S, steps_s))
        if shorter_s is None:
            return False
        self.budget.run_s -= window_s - shorter_s
        steps = max(int(self.setup.steps * shorter_s / window_s), LEAST_STEPS)
        self.setup = replace(self.setup, bounds=replace(self.setup.bounds, seconds=shorter_s), steps=steps)
        self._log.say(f"for a second pair, each run measures {duration(shorter_s)} from now on")
        return True

    def pace(self, rate: float) -> Pace:
        """The training's rate, and the time that a run takes beside what it measures."""
        return Pace(rate, self.start_s)

    @property
    def start_s(self) -> float:
        """Seconds of a run beside what it measures."""
        return max(self.budget.run_s - (self.setup.bounds.seconds or 0.0), 0.0)

    def needs(self, ratio: Ratio, before_s: float, threshold: float = NOISE_SHARE) -> str:
        """The time that the proof of an undecided gain needs, as runs took until now.

        Args:
            ratio: as measured.
            before_s: of the budget, that was spent before the pairs.
            threshold: that the gain has to clear.
        """
        if ratio.distorted:
            return "needs a machine on which other processes leave both the same cores"
        pairs = pairs_needed(ratio, threshold)
        if pairs is None:
            return "the pairs of runs differ too much to say how many more it needs"
        window_s = self.setup.bounds.seconds
        if pairs > MOST_PAIRS and window_s is not None:
            longer_s = math.ceil(window_s * pairs / MOST_PAIRS)
            budget = self.budget.for_pairs(before_s, MOST_PAIRS, longer_s - window_s)
            return f"needs longer runs: --seconds {longer_s}s --budget {budget} in all"
        more_s = 2 * (pairs - ratio.pairs) * self.budget.run_s
        return f"needs about {duration(more_s)} more, --budget {self.budget.for_pairs(before_s, pairs)} in all"
