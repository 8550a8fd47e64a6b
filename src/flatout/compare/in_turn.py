"""Running two commands in turn, A B B A, each recorded in a separate process tree."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flatout.compare.speed import Speed, alike, measure
from flatout.errors import CommandError, Interrupted
from flatout.runner import Bounds, record
from flatout.runner.failure import explain
from flatout.units import duration

DEFAULT_BOUNDS = Bounds(seconds=20.0)


@dataclass
class Trials:
    """The speeds measured of A and B.

    Attributes:
        a: speeds of A, one per run, in order.
        b: speeds of B.
        interrupted: by this; None: it was not.
    """

    a: list[Speed] = field(default_factory=list)
    b: list[Speed] = field(default_factory=list)
    interrupted: Interrupted | None = None

    def pairs(self) -> list[tuple[float, float]]:
        """Rates of the complete pairs."""
        return [(a.rate, b.rate) for a, b in zip(self.a, self.b, strict=False)]


def turn(number: int) -> tuple[str, str]:
    """The order of a pair: A B, B A, A B for the pairs 0, 1, 2, so that drift affects both equally."""
    return ("a", "b") if number % 2 == 0 else ("b", "a")


def run_pairs(
    a: Sequence[str], b: Sequence[str], pairs: int, bounds: Bounds, runs_dir: Path, quiet: bool = False
) -> Trials:
    """Run A and B in turn until ``pairs`` pairs are done, or until a signal ends it.

    The commands' own output goes to standard error, and each run is kept in ``runs_dir``.

    Raises:
        CommandError: a command failed, or no training step was seen.
    """
    trials = Trials()
    commands = {"a": a, "b": b}
    begin_s = time.monotonic()
    for number, side in enumerate((side for pair in range(pairs) for side in turn(pair)), 1):
        if not quiet:
            left = _left(begin_s, number, 2 * pairs)
            print(f"flatout: run {number} of {2 * pairs}: {side.upper()}{left}", file=sys.stderr, flush=True)
        outcome = record(commands[side], runs_dir, bounds, quiet=True, stdout_to_stderr=True, trace=False)
        if outcome.signal:
            trials.interrupted = Interrupted(outcome.signal)
            return trials
        if not outcome.live.first_step_ns or outcome.stop == "failed":
            message, code = explain(outcome)
            raise CommandError(f"{side.upper()}: {message}", code)
        getattr(trials, side).append(measure(outcome.run))
    alike(trials.a[0], trials.b[0])
    return trials


def _left(begin_s: float, number: int, total: int) -> str:
    done = number - 1
    if not done:
        return ""
    return f", about {duration((time.monotonic() - begin_s) / done * (total - done))} left"
