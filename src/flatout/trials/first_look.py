"""The first run of the unchanged training: it fills the caches of the disks, and says how long a step takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from flatout.compare.speed import Speed
from flatout.errors import CommandError
from flatout.runner import Bounds
from flatout.trials.budget import NEEDED_STEPS, STEPS, Budget
from flatout.trials.outcome import OK, TOO_SHORT, TrialRun
from flatout.trials.printed import last_lines
from flatout.trials.progress import ProgressLog
from flatout.trials.trial_run import LOG, TrialSetup

LOOK_S = 10.0  # of the first run at most
# A later run's first step may take this many times as long as the unchanged training's, and this long at least.
_LATER_FIRST_STEP = 5.0
_FIRST_STEP_S = 60.0


def look(
    setup: TrialSetup,
    made: Callable[[TrialSetup], TrialRun],
    given: Bounds | None,
    first_step_within_s: float | None,
    budget: Budget,
    log: ProgressLog,
) -> TrialRun:
    """Run the unchanged training, a second time for longer if the first made too few steps.

    Args:
        setup: of the run, without its bounds.
        made: makes it.
        given: the user's bounds of each run.
        first_step_within_s: the user's; None: a third of the budget.
        budget: for everything.
        log: of the progress.
    """
    within_s = first_step_within_s or max(budget.total_s / 3, 30.0)
    wanted = given or Bounds()
    seconds = wanted.seconds or (None if wanted.steps else min(LOOK_S, budget.total_s / 4))
    bounds = Bounds(steps=wanted.steps or STEPS, seconds=seconds, first_step_within_s=within_s)
    found = made(replace(setup, bounds=bounds))
    if found.outcome == TOO_SHORT and given is None:
        bounds = replace(bounds, steps=NEEDED_STEPS, seconds=max(budget.left_s / 4, LOOK_S))
        log.say("a step takes long: looking again")
        found = made(replace(setup, bounds=bounds))
    return found


def speed_seen(setup: TrialSetup, found: TrialRun, what: str) -> Speed:
    """The speed of the first run.

    Args:
        setup: of the run.
        found: the run.
        what: the training's name in a message.

    Raises:
        CommandError: it does not count.
    """
    if found.outcome != OK or found.speed is None:
        printed = last_lines(setup.folder / LOG)
        said = f"; it printed: {printed[-1]}" if printed else ""
        raise CommandError(f"{what} cannot be measured: {found.detail}{said}")
    return found.speed


def later_first_step_s(found: TrialRun, speed: Speed) -> float:
    """Seconds within which a later run's first step is expected."""
    return max(_LATER_FIRST_STEP * max(found.wall_s - speed.ledger.window_s, 0.0), _FIRST_STEP_S)
