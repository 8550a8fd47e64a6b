"""The first look of a fix: the training as it is, or with what an interrupted fix had kept, measured and diagnosed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from flatout.errors import UsageError
from flatout.record import RUNS_FOLDER, Run
from flatout.results import Diagnosis
from flatout.runner import Bounds
from flatout.runner.folder import keep_run
from flatout.trials.budget import LEAST_RUNS, NEEDED_STEPS, Budget, as_option
from flatout.trials.first_look import speed_seen
from flatout.trials.fix_options import Options
from flatout.trials.fix_runs import FixRuns
from flatout.trials.journal import Journal
from flatout.trials.outcome import TOO_SHORT, TrialRun
from flatout.trials.progress import ProgressLog
from flatout.trials.sequential import LEAST_PAIRS
from flatout.units import duration

LOOK_S = 20.0  # of the first run, which is diagnosed
EXPERIMENTS_FROM_S = 90.0  # of the budget: experiments take ten seconds and more of it


class Diagnoser(Protocol):
    """Diagnoses a run's record; see ``flatout.diagnosis.diagnose``."""

    def __call__(self, run: Run, refuted: Collection[str] = ...) -> Diagnosis: ...


@dataclass(frozen=True)
class Look:
    """What the first look found.

    Attributes:
        run: of the training as it is.
        diagnosis: of it; its verdict is that of the training as it is.
        rate: of the training as it is, in ``unit``.
        step_s: mean of the run's steps; 0: it has none.
        step_spread: their relative standard deviation.
    """

    run: Run
    diagnosis: Diagnosis
    rate: float
    unit: str
    step_s: float
    step_spread: float


def look(
    runs: FixRuns,
    settings: Mapping[str, Any],
    options: Options,
    journal: Journal,
    log: ProgressLog,
    diagnose: Diagnoser,
) -> Look:
    """Measure, and bound the runs of the trials by the steps that were seen.

    Args:
        runs: of the fix.
        settings: that an interrupted fix had kept.
        options: the user's limits.
        journal: of the fix; it has a look if the fix goes on.
        log: of its progress.
        diagnose: diagnoses a run's record.

    Raises:
        CommandError: the command fails, or trains no step.
        UsageError: the budget is too small for one pair of runs.
    """
    looked = next((line for line in journal.read() if line["kind"] == "look"), None)
    log.say("the training as it is" if looked is None else "going on after the trials that were made")
    found, bounds = _made(runs, settings, options, log, diagnose)
    if found.speed is None and runs.budget.left_s <= 1.0:
        raise runs.budget.over_before("the first training steps")
    speed = speed_seen(runs.setup, found, "the training as it is")
    assert found.run is not None, "a run whose speed is known is recorded"
    diagnosis = diagnose(found.run)
    ledger = diagnosis.ledger
    assert ledger is not None, "a run whose speed is known has a ledger"
    log.say(f"{speed.rate:,.1f} {speed.unit}. {diagnosis.verdict}")
    rate, unit = speed.rate, speed.unit
    if looked is None:
        journal.write("look", rate=rate, unit=unit, verdict=diagnosis.verdict)
    else:
        rate, unit = looked["rate"], looked["unit"]
        diagnosis = replace(diagnosis, verdict=looked["verdict"])
    step_s = ledger.window_s / ledger.steps.count if ledger.steps.count else 0.0
    window_s = runs.budget.plan_runs(found.wall_s, ledger.window_s, step_s, options.seconds, speed.error)
    if options.seconds is not None and window_s > options.seconds:
        log.say(
            f"each run measures {duration(window_s)}, not {duration(options.seconds)}: a step takes "
            f"{duration(step_s)}, and a comparison, of their losses too, needs {NEEDED_STEPS}"
        )
    if looked is None or not journal.progress().tried:
        _check_budget(runs.budget, found)
        _tell_if_small(runs.budget, log)
    runs.bound(bounds, window_s, step_s)
    spread = float(speed.steps_s.std() / speed.steps_s.mean()) if len(speed.steps_s) > 1 else 1.0
    return Look(found.run, diagnosis, rate, unit, step_s, spread)


def _made(
    runs: FixRuns,
    settings: Mapping[str, Any],
    options: Options,
    log: ProgressLog,
    diagnose: Diagnoser,
) -> tuple[TrialRun, Bounds]:
    """The run, a second and longer one if the first held too few steps, and its bounds."""
    budget_s = options.budget_s
    within_s = options.first_step_within_s or min(max(budget_s / 3, 30.0), budget_s)
    bounds = Bounds(seconds=min(LOOK_S, budget_s / LEAST_RUNS), first_step_within_s=within_s)
    experiments = budget_s >= EXPERIMENTS_FROM_S
    found = runs.look(settings, bounds, experiments)
    if found.outcome == TOO_SHORT and found.run is not None:
        # Slow steps need a longer run for a distribution, within the budget.
        seconds = _longer_s(runs.budget, found, diagnose(found.run), bounds.seconds or LOOK_S, log)
        bounds = replace(bounds, seconds=seconds)
        found = runs.look(settings, bounds, experiments)
    return found, bounds


def _longer_s(budget: Budget, found: TrialRun, diagnosis: Diagnosis, seconds: float, log: ProgressLog) -> float:
    """Measured time of a second look, after one of ``seconds`` that held too few steps.

    Raises:
        UsageError: the budget has no room for it and one pair.
    """
    ledger = diagnosis.ledger
    step_s = ledger.window_s / ledger.steps.count if ledger and ledger.steps.count else seconds
    needed_s = NEEDED_STEPS * step_s
    three_s = 3 * (max(found.wall_s - seconds, 0.0) + needed_s)
    if budget.left_s < three_s:
        raise UsageError(
            f"--budget {duration(budget.total_s)} is too small: a step takes {duration(step_s)}, and a look "
            f"and one pair of runs, of {NEEDED_STEPS} steps each, take {duration(three_s)} more; give at least "
            f"{as_option(budget.spent_s + three_s)}"
        )
    log.say(f"a step takes {duration(step_s)}: looking again, for {duration(needed_s)}")
    return needed_s


def _check_budget(budget: Budget, found: TrialRun) -> None:
    """Check that one pair fits.

    Raises:
        UsageError: it does not; the first diagnosis can still be shown.
    """
    try:
        budget.check(found.wall_s)
    except UsageError as error:
        assert found.run is not None, "its speed was measured"
        kept = keep_run(found.run.path, RUNS_FOLDER)
        raise UsageError(f"{error}; `flatout report {kept.name}` shows what the look found") from None


def _tell_if_small(budget: Budget, log: ProgressLog) -> None:
    """Say at the start that the budget has no room for one proof, with the time that it takes."""
    if not budget.room_for_pairs(LEAST_PAIRS):
        enough = budget.for_pairs(budget.spent_s, LEAST_PAIRS)
        log.say(
            f"--budget {duration(budget.total_s)} has no room for a proof: its {LEAST_PAIRS} pairs of runs "
            f"take {duration(2 * LEAST_PAIRS * budget.run_s)} as measured, and run times vary; after the look "
            f"{duration(budget.left_s)} are left. --budget {enough} has room for runs of the usual length"
        )
