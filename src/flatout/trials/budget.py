"""The time budget of a fix."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from flatout.errors import UsageError
from flatout.trials.losses import LEAST_LOSSES
from flatout.units import counted, duration

STEPS = 80  # of each run of a trial,
LEAST_S, MOST_S = 3.0, 30.0  # within these bounds
# Where steps vary, runs measure as long as they take to start, at most, until their rates have this relative error.
RATE_ERROR = 0.03
LEAST_STEPS = 12  # more than a comparison needs, plus a warm-up
NEEDED_STEPS = LEAST_LOSSES  # of a run that the user wants short
LEAST_RUNS = 5  # the first look, one pair of a trial, and one of the proof
PLANNED_RUNS = 6  # after the look: two pairs, and what a remedy prepares or a diagnosis measures
AMPLE_RUNS = 12  # a budget for this many runs has room for a proof of two pairs
_MARGIN = 1.1  # run times vary


class OutOfTime(Exception):
    """The budget ran out in the middle of a run."""


class Budget:
    """Time left, counted from the construction.

    Attributes:
        total_s: what the user allows.
        run_s: time of a trial's run, start and end included; updated after each run.
    """

    def __init__(self, total_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.total_s, self._clock = total_s, clock
        self.begin_s = clock()
        self.deadline_s = self.begin_s + total_s
        self.run_s = 0.0
        self.full_run_s = 0.0  # the same if the budget does not shorten the runs

    @property
    def spent_s(self) -> float:
        """Seconds since the construction."""
        return self._clock() - self.begin_s

    @property
    def left_s(self) -> float:
        """Seconds left; negative once the budget is spent."""
        return self.deadline_s - self._clock()

    def plan_runs(
        self, look_s: float, measured_s: float, step_s: float, fixed_s: float | None, error: float = 0.0
    ) -> float:
        """Measured time of each run of a trial; shorter if the budget is small.

        Args:
            look_s: duration of the first run, from its start to its end.
            measured_s: the measured part of it.
            step_s: mean of its steps: batches that arrive together make the median of steps short.
            fixed_s: the time that the user asks for, lengthened to that of NEEDED_STEPS steps; None: the time of STEPS
                steps.
            error: relative standard error of the look's rate; it falls with the root of the measured time.

        Returns:
            Seconds.
        """
        least_s, start_s = max(LEAST_S, LEAST_STEPS * step_s), max(look_s - measured_s, 0.0)
        usual_s = max(STEPS * step_s, min((error / RATE_ERROR) ** 2 * measured_s, start_s))
        window_s = max(fixed_s, NEEDED_STEPS * step_s) if fixed_s else max(min(usual_s, MOST_S), least_s)
        self.run_s = self.full_run_s = start_s + window_s
        spare_s = self.left_s - PLANNED_RUNS * self.run_s
        if spare_s < 0 and not fixed_s:
            shorter = max(window_s + spare_s / PLANNED_RUNS, least_s)
            self.run_s += shorter - window_s
            window_s = shorter
        return window_s

    def check(self, look_s: float) -> None:
        """Check that one pair fits.

        Raises:
            UsageError: it does not.
        """
        if self.left_s < 2 * self.run_s:
            raise UsageError(
                f"--budget {duration(self.total_s)} is too small for one pair of runs: the look took "
                f"{duration(look_s)}, and a pair takes {duration(2 * self.run_s)} more; give at least "
                f"{self.for_pairs(look_s, 2)}"
            )

    def over_before(self, what: str) -> UsageError:
        """The error for a budget that was over before anything was measured."""
        return UsageError(
            f"--budget {duration(self.total_s)} is too small: it was over before {what}; give several times what the "
            "training takes to its first steps, such as --budget 3m"
        )

    def for_pairs(self, before_s: float, pairs: int, longer_s: float = 0.0) -> str:
        """The smallest budget in which a trial has room for this many pairs, as a value of ``--budget``.

        Args:
            before_s: time spent before the trial.
            pairs: of the trial, two or more.
            longer_s: that each run takes beyond those until now.
        """
        return as_option(before_s + 2 * (pairs - 1 + _MARGIN) * (max(self.run_s, self.full_run_s) + longer_s))

    def shorter_runs_s(self, window_s: float, runs: int, least_s: float) -> float | None:
        """Measured time of runs with which this many fit into the time left.

        Args:
            window_s: measured time of a run now.
            runs: how many have to fit.
            least_s: the shortest measured time.

        Returns:
            Seconds; None if runs that measure ``least_s`` do not fit either.
        """
        shorter_s = self.left_s / (_MARGIN * runs) - max(self.run_s - window_s, 0.0)
        return min(shorter_s, window_s) if shorter_s >= least_s else None

    def learn(self, wall_s: float) -> None:
        """Update ``run_s`` with the duration of a run."""
        self.run_s = 0.5 * (self.run_s + wall_s)

    def room(self, runs: int, longer_s: float = 0.0) -> bool:
        """True if this many runs fit, with this many seconds beyond their usual ones."""
        return self.left_s >= _MARGIN * runs * self.run_s + longer_s

    def room_for_pairs(self, pairs: int) -> bool:
        """True if a trial, which looks for room before each pair, can make this many: those of ``for_pairs``."""
        return self.left_s >= 2 * (pairs - 1 + _MARGIN) * self.run_s

    def room_for_trial(self, runs: int, kept: bool, longer_s: float = 0.0) -> bool:
        """True if this many runs of a trial fit, plus the proof after them: two pairs, or one in a small budget.

        Args:
            runs: of the trial.
            kept: a remedy was kept before; the trial of the only kept remedy is itself the proof.
            longer_s: seconds that they take beyond those until now.
        """
        return self.room(runs + self._proof_runs(kept), longer_s)

    def shortage(self, runs: int, kept: bool = False) -> str:
        """What to say at the end: the time left, that which these runs and a proof after them take, and a budget."""
        runs += self._proof_runs(kept)
        needed_s = _MARGIN * runs * self.run_s
        left_s = max(self.left_s, 0.0)
        return (
            f"{duration(left_s)} left, and {counted(runs, 'run')} take about {duration(needed_s)}: "
            f"--budget {as_option(self.total_s + needed_s - left_s)}"
        )

    def _proof_runs(self, kept: bool) -> int:
        return (4 if self.total_s > AMPLE_RUNS * self.run_s else 2) if kept else 0


def as_option(seconds: float) -> str:
    """A time rounded up to ten seconds, in an option's format: "90s", "4m10s"."""
    minutes, rest = divmod(math.ceil(seconds / 10) * 10, 60)
    return f"{minutes}m{f'{rest}s' if rest else ''}" if minutes > 1 else f"{60 * minutes + rest}s"
