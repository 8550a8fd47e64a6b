"""Bounds at which a recording ends by itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from flatout.errors import UsageError
from flatout.units import check_count, check_seconds, duration

DEFAULT_SECONDS = 60.0
# With the default bound, slow steps (case: 18 s each) still give a usable distribution.
DEFAULT_LEAST_STEPS = 12
DEFAULT_MOST_SECONDS = 600.0
FIRST_STEP_WITHIN_S = 600.0
MOST_STRETCHED = 4.0


@dataclass(frozen=True)
class Bounds:
    """Bounds of the measured window, counted from the first training step.

    Attributes:
        steps: End after this many steps.
        seconds: End after this long.
        full: Record until the command ends; no other bound is allowed with it.
        first_step_within_s: Give up when no step was seen for this long after the start.
        least_steps: ``seconds`` may become up to ``MOST_STRETCHED`` times as long for so many steps.
        over: End before, once this says so.
    """

    steps: int | None = None
    seconds: float | None = None
    full: bool = False
    first_step_within_s: float = FIRST_STEP_WITHIN_S
    least_steps: int = 0
    over: Callable[[], bool] | None = None

    def __post_init__(self) -> None:
        if self.full and (self.steps is not None or self.seconds is not None):
            raise UsageError("--full records to the end: leave out --steps and --seconds, or leave out --full")
        if self.seconds is not None and not math.isfinite(self.seconds):
            raise UsageError(f"--seconds is {self.seconds}, but must be a time, such as 90s; --full records to the end")
        for name, value in (("--steps", self.steps), ("--seconds", self.seconds)):
            if value is not None and value <= 0:
                raise UsageError(f"{name} is {value:g}, but must be above 0; leave it out for the default bound")
        if self.steps is not None:
            check_count(self.steps, option="--steps")
        if self.seconds is not None:
            check_seconds(self.seconds, f"{self.seconds:g}", option="--seconds")
        if self.first_step_within_s <= 0:
            raise UsageError(f"--first-step-within is {duration(self.first_step_within_s)}, but must be above 0")

    def reached(self, steps: int, elapsed_s: float) -> str | None:
        """The bound that is reached ("steps" or "seconds"), if any.

        Args:
            steps: Steps since the first one.
            elapsed_s: Seconds since the first step.
        """
        if self.full:
            return None
        if self.steps is not None and steps >= self.steps:
            return "steps"
        if self.over is not None and self.over():
            return "seconds"
        if self.seconds is not None and elapsed_s >= self.seconds:
            stretched = steps < self.least_steps and elapsed_s < MOST_STRETCHED * self.seconds
            return None if stretched else "seconds"
        by_default = self.steps is None and self.seconds is None
        enough = steps >= DEFAULT_LEAST_STEPS or elapsed_s >= DEFAULT_MOST_SECONDS
        return "seconds" if by_default and elapsed_s >= DEFAULT_SECONDS and enough else None

    def to_dict(self) -> dict[str, object]:
        """As run.json keeps it."""
        return {"steps": self.steps, "seconds": self.seconds, "full": self.full}
