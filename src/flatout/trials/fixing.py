"""``flatout fix``: look, try one remedy after the other on top of those kept, prove the combination."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from flatout.compare.ratio import Ratio
from flatout.diagnosis import diagnose
from flatout.errors import CommandError, FlatoutError, Interrupted, UsageError
from flatout.measure.thresholds import NOISE_SHARE
from flatout.probe.settings import combined
from flatout.record import RUNS_FOLDER, Run
from flatout.remedies.proposal import IDENTICAL
from flatout.results import Diagnosis, Remedy
from flatout.runner import Bounds
from flatout.runner.folder import keep_run
from flatout.trials.backoff import smaller
from flatout.trials.budget import LEAST_RUNS, LEAST_S, LEAST_STEPS, NEEDED_STEPS, STEPS, Budget, OutOfTime, as_option
from flatout.trials.decide import judge, prove, titled
from flatout.trials.isolation import remove
from flatout.trials.journal import Journal
from flatout.trials.live import Plan, not_live
from flatout.trials.local_copy import LocalCopy
from flatout.trials.mechanics import Mechanics
from flatout.trials.outcome import FAILED, GUARDED, OK, OUT_OF_MEMORY, TOO_SHORT, TrialRun
from flatout.trials.pairs import Pairs, measure_pairs
from flatout.trials.printed import last_lines
from flatout.trials.progress import ProgressLog
from flatout.trials.result import KEPT, UNCONFIRMED, UNMEASURED, FixResult, Proof, Trial, dropped_from, merged
from flatout.trials.screening import (
    LONG_START_S,
    MOST_TOGETHER,
    BlocksRunner,
    Costs,
    bounded,
    confirmed,
    judged,
    screen,
    undecided,
    withdrawn,
)
from flatout.trials.select import Choice, key, with_found_by_experiments
from flatout.trials.sequential import LEAST_PAIRS, MOST_PAIRS, decided, gains, pairs_needed
from flatout.trials.shared_samples import Pace, SharedSamples
from flatout.trials.trial_run import LOG, TrialSetup, run_blocks, run_once
from flatout.units import counted, duration, interval

LOOK_S = 20.0  # of the first run, which is diagnosed
EXPERIMENTS_FROM_S = 90.0  # of the budget: experiments take ten seconds and more of it
TRIAL_RUNS = 4  # one pair alone can drop a remedy, but not keep it


@dataclass(frozen=True)
class Options:
    """Limits that the user sets for a fix.

    Attributes:
        allowed: semantic classes of remedies that may be kept.
        budget_s: for the whole fix.
        seconds: of each run of a trial; None: as long as 80 steps take, within bounds.
        staged: "REAL=COPY": location of an existing copy of the data; None: no copy.
        stage_to: folder for a copy that a trial makes; None: the fix's folder, if it is on a local disk.
        live: compare in one running training what can be switched there, before the proof; None: where a start takes
            LONG_START_S or more.
        first_step_within_s: a run without a training step by then is ended; None: a third of the budget, at
            least 30 s, at most all of it.
    """

    allowed: frozenset[str] = frozenset({IDENTICAL})
    budget_s: float = 600.0
    seconds: float | None = None
    staged: str | None = None
    stage_to: Path | None = None
    first_step_within_s: float | None = None
    live: bool | None = None


class Runner(Protocol):
    """Makes one run of a trial; see ``run_once``."""

    def __call__(self, setup: TrialSetup, settings: Mapping[str, Any], deadline_s: float = ...) -> TrialRun: ...


class Fixing:
    """One fix, from the first look to the proof."""

    def __init__(
        self,
        setup: TrialSetup,
        options: Options,
        journal: Journal,
        log: ProgressLog,
        *,
        run_once: Runner = run_once,
        run_blocks: BlocksRunner = run_blocks,
        diagnose: Callable[[Run], Diagnosis] = diagnose,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Run nothing yet.

        Args:
            setup: of the runs.
            options: the user's limits.
            journal: of this fix.
            log: of its progress.
            run_once: makes a run.
            run_blocks: makes the run of a live trial.
            diagnose: diagnoses a run's record.
            clock: seconds; the one that ``run_once`` uses for its deadline.
        """
        self.setup, self.options, self.journal, self.log = setup, options, journal, log
        self._run_once, self._diagnose, self._clock = run_once, diagnose, clock
        self._run_blocks = run_blocks
        self.budget = Budget(options.budget_s, clock)
        # Keyed by the remedies' names for it.
        self.mechanics: dict[str, Mechanics] = {
            "": Mechanics(),
            "local_copy": LocalCopy(
                setup.folder, lambda: self.budget.left_s, log.say, given=options.staged, to=options.stage_to
            ),
            "shared_samples": SharedSamples(
                self._first_pass,
                lambda: Pace(self.before, max(self.budget.run_s - (self.setup.bounds.seconds or 0.0), 0.0)),
                lambda: self.budget.left_s,
                log.say,
            ),
        }
        self.choice = Choice(options.allowed, self.mechanics, setup.locations)
        self.progress = journal.progress()
        self.ended = ""
        self.first: Diagnosis | None = None
        self.before, self.unit = 0.0, "samples/s"
        self.step_s, self.step_spread = 0.0, 1.0  # of the first look; relative standard deviation
        self._restarted: dict[tuple[Any, ...], str] = {}  # remedies that a live trial did not decide, and why
        self.proof: Proof | None = None
        self.first_kept: Pairs | None = None  # of the trial of the only kept remedy, which compare what the proof does
        self.interrupted: Interrupted | None = None
        for left in setup.folder.glob("scratch-*"):  # of a fix that was killed
            remove(left)

    def run(self) -> FixResult:
        """Measure, try remedies, and prove what was kept.

        Raises:
            CommandError: the command fails, or trains no step.
            UsageError: the budget is too small for one pair of runs.
        """
        try:
            diagnosis = self._look()
            for mechanics in self.mechanics.values():
                mechanics.resume(self.progress.settings, diagnosis.loader)
            self._try_remedies(diagnosis)
            if self.progress.settings:
                self._prove()
        except (Interrupted, KeyboardInterrupt) as stop:
            self.interrupted = stop if isinstance(stop, Interrupted) else Interrupted()
            self.ended = f"Ended early by {self.interrupted}."
        except OutOfTime:
            self.ended = f"The budget of {duration(self.options.budget_s)} is used up."
        finally:
            for mechanics in self.mechanics.values():
                mechanics.clean_up(self.progress.settings)
        if any(trial.screened for trial in self._kept()) and not confirmed(self.proof):
            self.progress.tried[:] = withdrawn(self.progress.tried, self.proof)
            self.proof = None
        if self.proof is None and self.first_kept is not None and len(self._kept()) == 1:
            self.proof = prove(self.first_kept, self.unit, self._kept())
            self.ended += " The trial that was kept is the proof: there was no time for another one."
        if self.first is None:
            raise self.interrupted or Interrupted()
        if not self.interrupted:
            self.journal.write("end", why=self.ended, proof=self.proof.to_dict() if self.proof else None)
        return FixResult(
            command=self.setup.command,
            before=self.before,
            unit=self.unit,
            verdict=self.first.verdict,
            tried=tuple(self.progress.tried),
            untried=tuple(self.choice.untried.values()),
            proof=self.proof,
            ended=self.ended,
            isolation=self.setup.isolation.describe(),
            folder=str(self.setup.folder.absolute()),
            seconds=self.budget.spent_s,
            interrupted=self.interrupted,
            loader=self.first.loader,
            plans=tuple(p for p in self.first.plans if len(dropped_from(p, self.progress.tried)) < len(p.remedies)),
        )

    # --- the first look ---

    def _look(self) -> Diagnosis:
        """Measure the unchanged training, or the training with what a killed fix had kept."""
        looked = next((line for line in self.journal.read() if line["kind"] == "look"), None)
        self.log.say("the training as it is" if looked is None else "going on after the trials that were made")
        budget_s = self.options.budget_s
        seconds = min(LOOK_S, budget_s / LEAST_RUNS)
        # Slow steps need a longer run for a distribution, within the budget.
        within_s = self.options.first_step_within_s or min(max(budget_s / 3, 30.0), budget_s)
        bounds = Bounds(seconds=seconds, first_step_within_s=within_s)
        experiments = budget_s >= EXPERIMENTS_FROM_S
        look = self._run_once(replace(self.setup, bounds=bounds, experiments=experiments), self.progress.settings)
        if look.outcome == TOO_SHORT and look.run is not None:
            bounds = replace(bounds, seconds=self._longer_look_s(look, seconds))
            look = self._run_once(replace(self.setup, bounds=bounds, experiments=experiments), self.progress.settings)
        if look.outcome != OK or look.speed is None or look.run is None:
            raise CommandError(
                f"the training as it is cannot be measured: {look.detail}; it printed: {self._printed()}"
            )
        found = self._diagnose(look.run)
        ledger = found.ledger
        assert ledger is not None, "a run whose speed is known has a ledger"
        self.first = found
        if looked is None:
            self.before, self.unit = look.speed.rate, look.speed.unit
            self.journal.write("look", rate=self.before, unit=self.unit, verdict=found.verdict)
        else:
            self.before, self.unit = looked["rate"], looked["unit"]
            self.first = replace(found, verdict=looked["verdict"])
        self.step_s = step_s = ledger.window_s / ledger.steps.count if ledger.steps.count else 0.0
        steps_s = look.speed.steps_s
        self.step_spread = float(steps_s.std() / steps_s.mean()) if len(steps_s) > 1 else 1.0
        window_s = self.budget.plan_runs(look.wall_s, ledger.window_s, step_s, self.options.seconds)
        self.log.say(f"{look.speed.rate:,.1f} {look.speed.unit}. {found.verdict}")
        if self.options.seconds is not None and window_s > self.options.seconds:
            self.log.say(
                f"each run measures {duration(window_s)}, not {duration(self.options.seconds)}: a step takes "
                f"{duration(step_s)}, and a comparison, of their losses too, needs {NEEDED_STEPS}"
            )
        if not self.progress.tried:
            self._check_budget(look)
            self._tell_if_small(look)
        self.setup = replace(
            self.setup,
            bounds=replace(bounds, seconds=window_s),
            steps=max(int(window_s / step_s), 10) if step_s > 0 else STEPS,
        )
        return found

    def _longer_look_s(self, look: TrialRun, seconds: float) -> float:
        """Measured time of a second look, after one of ``seconds`` that held too few steps.

        Raises:
            UsageError: the budget has no room for it and one pair.
        """
        assert look.run is not None, "a run that is too short is recorded"
        ledger = self._diagnose(look.run).ledger
        step_s = ledger.window_s / ledger.steps.count if ledger and ledger.steps.count else seconds
        needed_s = NEEDED_STEPS * step_s
        three_s = 3 * (max(look.wall_s - seconds, 0.0) + needed_s)
        if self.budget.left_s < three_s:
            raise UsageError(
                f"--budget {duration(self.options.budget_s)} is too small: a step takes {duration(step_s)}, and a look "
                f"and one pair of runs, of {NEEDED_STEPS} steps each, take {duration(three_s)} more; give at least "
                f"{as_option(self.budget.spent_s + three_s)}"
            )
        self.log.say(f"a step takes {duration(step_s)}: looking again, for {duration(needed_s)}")
        return needed_s

    def _check_budget(self, look: TrialRun) -> None:
        """Check that one pair fits.

        Raises:
            UsageError: it does not; the first diagnosis can still be shown.
        """
        try:
            self.budget.check(look.wall_s)
        except UsageError as error:
            assert look.run is not None, "its speed was measured"
            kept = keep_run(look.run.path, RUNS_FOLDER)
            raise UsageError(f"{error}; `flatout report {kept.name}` shows what the look found") from None

    def _tell_if_small(self, look: TrialRun) -> None:
        """Say at the start that the budget has no room for one proof, with the time that it takes."""
        if not self.budget.room_for_pairs(LEAST_PAIRS):
            self.log.say(
                f"--budget {duration(self.options.budget_s)} has no room for a proof: its {LEAST_PAIRS} pairs of runs "
                f"take {duration(2 * LEAST_PAIRS * self.budget.run_s)} as measured, after a look of "
                f"{duration(look.wall_s)}; --budget {self.budget.for_pairs(self.budget.spent_s, LEAST_PAIRS)} has"
            )

    # --- trials ---

    def _try_remedies(self, diagnosis: Diagnosis) -> None:
        """Try remedies one at a time, largest predicted gain first; diagnose again after each that is kept."""
        while True:
            remedy = self.choice.next(diagnosis, self.progress.tried, self.progress.settings)
            if remedy is None:
                self.ended = self._nothing_left()
                return
            if not self._room(TRIAL_RUNS if self.progress.tried else 2):
                self.choice.no_time(remedy)
                self.ended = f"The budget of {duration(self.options.budget_s)} has no room for another trial."
                return
            trials, last = self._screened(diagnosis, remedy)
            if not trials:
                trial, last = self._trial(remedy)
                trials = [trial]
            for trial in trials:
                self.progress.tried.append(trial)
                self.journal.write("trial", trial=trial.to_dict())
                self.log.trial(trial)
            if last is not None and last.run is not None and any(trial.outcome == KEPT for trial in trials):
                diagnosis = with_found_by_experiments(self._diagnose(last.run), diagnosis)

    def _nothing_left(self) -> str:
        """Why no remedy is tried any more although there is time."""
        unconfirmed = [trial for trial in self.progress.tried if trial.outcome == UNCONFIRMED and not trial.live]
        undecided = [trial.ratio for trial in unconfirmed if trial.ratio is None or not gains(trial.ratio)]
        if any(ratio is None or ratio.pairs < MOST_PAIRS for ratio in undecided):
            return f"The budget of {duration(self.options.budget_s)} had no room for another pair of runs."
        if undecided:
            return f"A gain was seen that {MOST_PAIRS} pairs of runs did not prove."
        if any(trial.outcome == UNMEASURED for trial in self.progress.tried):
            return "A run without a remedy failed, so its trial says nothing about the remedy."
        other = "other " if self.progress.tried else ""
        return f"There is no {other}remedy that flatout can try and whose predicted gain a trial could tell from noise."

    def _trial(self, remedy: Remedy) -> tuple[Trial, TrialRun | None]:
        """Try a remedy; if memory runs out, the next smaller value. Also returns the last run with it."""
        begin_s, before_s = self._clock(), self.budget.spent_s
        mechanics = self.mechanics[remedy.mechanics]
        try:
            mechanics.prepare(remedy.settings)
        except FlatoutError as error:
            wall_s = self._clock() - begin_s
            found = Pairs(failed=TrialRun(FAILED, str(error), wall_s))
            return judge(remedy, remedy.settings, found, "", wall_s), None
        found, settings, history = self._pairs(remedy)
        trial = judge(remedy, settings, found, history, self._clock() - begin_s)
        trial = replace(trial, restarted=self._restarted.get(key(remedy), ""))
        if trial.ratio is not None:
            trial = mechanics.with_cost(trial, *found.rates(), self.first.loader if self.first else {})
        if trial.outcome == UNCONFIRMED and trial.ratio is not None and not gains(trial.ratio):
            trial = replace(trial, why=f"{trial.why}: {self._needs(trial.ratio, before_s)}")
        if trial.outcome == KEPT and not self._kept():
            self.first_kept = found
        return trial, found.b[-1] if found.b else None

    def _needs(self, ratio: Ratio, before_s: float, threshold: float = NOISE_SHARE) -> str:
        """The time that the proof of an undecided gain needs, as runs took until now."""
        pairs = pairs_needed(ratio, threshold)
        if pairs is None:
            return "needs more pairs of runs than can be told: they differ too much"
        more_s = 2 * (pairs - ratio.pairs) * self.budget.run_s
        return f"needs about {duration(more_s)} more, --budget {self.budget.for_pairs(before_s, pairs)} in all"

    def _screened(self, diagnosis: Diagnosis, remedy: Remedy) -> tuple[list[Trial], TrialRun | None]:
        """Trials in one process of this remedy and of others, if it can be switched; a run with what they gained."""
        candidates = self._live_candidates(diagnosis, remedy)
        if not candidates:
            return [], None
        begin_s, kept = self._clock(), self.progress.settings
        findings = screen(
            self._run_live, [one.settings for one in candidates], kept, self._loader(), self._costs(),
            len(self.progress.tried),
        )  # fmt: skip
        each_s = (self._clock() - begin_s) / len(findings)
        trials = []
        for candidate, finding in zip(candidates, findings, strict=False):
            trial = judged(candidate, finding, each_s)
            if trial is None:
                self._restarted[key(candidate)] = undecided(finding.ratio, finding.because)
            else:
                trials.append(trial)
        gained = [trial for trial in trials if trial.outcome == KEPT]
        if not gained:
            return trials, None
        self.log.say(f"gained: {'; '.join(trial.title for trial in gained)}; a run from the start")
        last = self._run(combined(kept, merged(gained)))
        if last.outcome == OK:
            return trials, last
        for candidate in candidates:
            if any(trial.title == candidate.title for trial in gained):
                self._restarted[key(candidate)] = f"a run with it from the start ended: {last.detail}"
        return [trial for trial in trials if trial.outcome != KEPT], None

    def _live_candidates(self, diagnosis: Diagnosis, remedy: Remedy) -> list[Remedy]:
        """Remedies to try in one process, this one first; none where it is to be tried by runs of its own."""
        wanted = self.options.live
        if not (self._costs().start_s >= LONG_START_S if wanted is None else wanted):
            return []
        if why := not_live(remedy.settings):
            self._restarted.setdefault(key(remedy), why)
        eligible = self.choice.eligible(diagnosis, self.progress.tried, self.progress.settings)
        found = [
            one for one in eligible if not (one.mechanics or not_live(one.settings) or key(one) in self._restarted)
        ]
        return found[:MOST_TOGETHER] if remedy in found else []

    def _costs(self) -> Costs:
        window_s = self.setup.bounds.seconds or 0.0
        start_s = max(self.budget.run_s - window_s, 0.0)
        return Costs(start_s, self.budget.run_s, self.step_s, self.budget.left_s, self.step_spread)

    def _loader(self) -> Mapping[str, Any]:
        return self.first.loader if self.first else {}

    def _run_live(self, settings: Mapping[str, Any], plan: Plan) -> TrialRun:
        """The run of a live trial."""
        self.log.say(
            f"live trial of {counted(len(plan.candidates), 'remedy', 'remedies')} in one process, about "
            f"{duration(plan.needed_s)} after its start"
        )
        setup = bounded(self.setup, plan)
        return self._run_blocks(setup, settings, plan.to_dict(), deadline_s=self.budget.deadline_s)

    def _pairs(self, remedy: Remedy) -> tuple[Pairs, Mapping[str, Any] | None, str]:
        """Pairs of runs at the largest value that fits into memory, that value (None: none fits), and what did not."""
        kept = self.progress.settings
        settings: Mapping[str, Any] | None = remedy.settings
        history, lengthened = "", False
        while True:
            assert settings is not None, "the loop ends when there is no smaller value"
            self.log.say(f"trial: {titled(remedy, settings)} (predicted {interval(remedy.gain)})")
            found = measure_pairs(self._run, kept, combined(kept, settings), room=self._room_for_pair, decided=decided)
            if found.failed and found.failed.outcome == TOO_SHORT and not lengthened and self._lengthen():
                lengthened = True
                continue
            if found.failed is None or found.failed.outcome not in (OUT_OF_MEMORY, GUARDED) or found.failed_without:
                return found, settings, history
            history += f"{titled(remedy, settings)}: {found.failed.detail}. "
            settings = smaller(settings, kept, self.first)
            if settings is None or not self._room(TRIAL_RUNS):
                return found, None, history

    def _lengthen(self) -> bool:
        """Double the measured time of the runs if the budget has room for a pair of such runs."""
        bounds = self.setup.bounds
        if bounds.seconds is None or self.budget.left_s < 2 * (self.budget.run_s + bounds.seconds):
            return False
        self.budget.run_s += bounds.seconds
        self.setup = replace(self.setup, bounds=replace(bounds, seconds=2 * bounds.seconds), steps=2 * self.setup.steps)
        self.log.say(f"too few steps to compare: each run measures {duration(2 * bounds.seconds)} from now on")
        return True

    def _room_for_pair(self, runs: int) -> bool:
        """True if a pair fits, if need be of shorter runs: it decides more than the time that would be left over."""
        if self._room(runs):
            return True
        window_s = self.setup.bounds.seconds
        if self._kept() or window_s is None or self.options.seconds is not None:
            return False
        steps_s = window_s / self.setup.steps * LEAST_STEPS
        shorter_s = self.budget.shorter_runs_s(window_s, runs, max(LEAST_S, steps_s))
        if shorter_s is None:
            return False
        self.budget.run_s -= window_s - shorter_s
        steps = max(int(self.setup.steps * shorter_s / window_s), LEAST_STEPS)
        self.setup = replace(self.setup, bounds=replace(self.setup.bounds, seconds=shorter_s), steps=steps)
        self.log.say(f"for a second pair, each run measures {duration(shorter_s)} from now on")
        return True

    def _room(self, runs: int) -> bool:
        return self.budget.room_for_trial(runs, bool(self._kept()))

    def _prove(self) -> None:
        """Measure the original training against all kept remedies, in separate pairs."""
        if self.first_kept is not None and len(self._kept()) == 1 and not self.budget.room(TRIAL_RUNS):
            return  # the pairs of its trial are stronger evidence than one more pair
        self.log.say("proof: the training as it was against all that was kept")
        begin_s = self.budget.spent_s
        found = measure_pairs(self._run, {}, self.progress.settings, room=self.budget.room, decided=_proved)
        if self.first_kept is not None and len(self._kept()) == 1 and found.ratio() is not None:
            found = found.together(self.first_kept)
        self.proof = prove(found, self.unit, self._kept())
        screened = any(trial.screened for trial in self._kept())
        if screened and not confirmed(self.proof) and self.proof is not None:
            self.progress.tried[:] = withdrawn(self.progress.tried, self.proof)
            self.proof = None
            if self._kept() and self.budget.room(2):
                self._prove()
            return
        if self.proof is None:
            self.ended += f" The proof could not be made: {found.failed.detail if found.failed else 'no pair'}"
        elif self.proof.ratio.low <= 1.0 < self.proof.ratio.factor:
            self.ended += f" The proof {self._needs(self.proof.ratio, begin_s, threshold=0.0)}."

    def _kept(self) -> list[Trial]:
        return [trial for trial in self.progress.tried if trial.outcome == KEPT]

    def _run(self, settings: Mapping[str, Any]) -> TrialRun:
        """One run; Ctrl-C and the end of the budget end the whole fix."""
        left_s = self.budget.left_s
        if left_s <= 1.0:
            raise OutOfTime
        bounds = replace(self.setup.bounds, first_step_within_s=min(self.setup.bounds.first_step_within_s, left_s + 1))
        run = self._run_once(replace(self.setup, bounds=bounds), settings, deadline_s=self.budget.deadline_s)
        if run.outcome == GUARDED and self.budget.left_s <= 0:
            raise OutOfTime
        if run.outcome == OK:
            self.budget.learn(run.wall_s)
        return run

    def _first_pass(self, settings: Mapping[str, Any], seconds: float, over: Callable[[], bool]) -> TrialRun:
        """A run that is not measured, on top of what was kept."""
        bounds = replace(self.setup.bounds, seconds=seconds, steps=None, over=over)
        with_kept = combined(self.progress.settings, settings)
        return self._run_once(replace(self.setup, bounds=bounds), with_kept, deadline_s=self.budget.deadline_s)

    def _printed(self) -> str:
        """The last line of the command's own output."""
        return next(iter(last_lines(self.setup.folder / LOG)[-1:]), "nothing that can be shown")


def _proved(ratio: Ratio) -> bool:
    """True if the proof needs no further pair: any gain counts, now that each remedy cleared the threshold."""
    return ratio.pairs >= LEAST_PAIRS and (ratio.resolved or decided(ratio, threshold=0.0))


def clean(folder: Path) -> None:
    """Remove what only the trials needed, records of runs too; the journal stays."""
    for name in ("cache", "configs", "runs"):
        shutil.rmtree(folder / name, ignore_errors=True)
