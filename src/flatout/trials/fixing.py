"""``flatout fix``: look, try one remedy after the other on top of those kept, prove the combination."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flatout.compare.crowding import crowded
from flatout.compare.ratio import Ratio
from flatout.diagnosis import diagnose
from flatout.errors import FlatoutError, Interrupted
from flatout.probe.settings import SETTINGS, combined
from flatout.record import Run
from flatout.results import Diagnosis, Remedy
from flatout.trials.backoff import smaller
from flatout.trials.budget import OutOfTime
from flatout.trials.decide import judge, prove, titled
from flatout.trials.earlier_profile import same_threads
from flatout.trials.fix_ending import nothing_left
from flatout.trials.fix_live import LiveTrials
from flatout.trials.fix_look import Diagnoser, Look, look
from flatout.trials.fix_options import Options
from flatout.trials.fix_runs import FixRuns, Runner
from flatout.trials.isolation import remove
from flatout.trials.journal import Journal
from flatout.trials.local_copy import LocalCopy
from flatout.trials.mechanics import Mechanics
from flatout.trials.outcome import FAILED, GUARDED, OUT_OF_MEMORY, TOO_SHORT, TrialRun
from flatout.trials.pairs import Pairs, measure_pairs
from flatout.trials.progress import ProgressLog
from flatout.trials.result import KEPT, UNCONFIRMED, FixResult, Proof, Trial, refuted
from flatout.trials.screening import BlocksRunner, confirmed, withdrawn
from flatout.trials.select import Choice, with_found_by_experiments, with_profiled
from flatout.trials.sequential import LEAST_PAIRS, decided, gains
from flatout.trials.shared_samples import SharedSamples
from flatout.trials.trial_run import TrialSetup, run_blocks, run_once
from flatout.units import duration, interval

TRIAL_RUNS = 4  # one pair alone can drop a remedy, but not keep it


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
        profiled: Run | None = None,
        diagnose: Diagnoser = diagnose,
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
            profiled: an earlier profile of the same training; None: there is none.
            diagnose: diagnoses a run's record.
            clock: seconds; the one that ``run_once`` uses for its deadline.
        """
        self.options, self.journal, self.log, self._diagnose = options, journal, log, diagnose
        self._profiled = profiled
        self.runs = runs = FixRuns(setup, options, log, run_once, clock)
        self.progress = journal.progress()
        self._resumed_after = len(self.progress.tried) if len(journal.read()) > 1 else None
        # Keyed by the remedies' names for it.
        self.mechanics: dict[str, Mechanics] = {
            "": Mechanics(),
            "local_copy": LocalCopy(
                setup.folder, lambda: runs.budget.left_s, log.say, given=options.staged, to=options.stage_to
            ),
            "shared_samples": SharedSamples(
                lambda settings, seconds, over: runs.unmeasured(self.progress.settings, settings, seconds, over),
                lambda: runs.pace(self.look.rate if self.look else 0.0),
                lambda: runs.budget.left_s,
                log.say,
            ),
        }
        self.choice = Choice(options.allowed, self.mechanics, setup.locations)
        self.live = LiveTrials(runs, self.choice, self.progress, options, log, run_blocks)
        self.ended = ""
        self.look: Look | None = None
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
            self.look = look(
                self.runs, self.progress.settings, self.options, self.journal, self.log, self._diagnose
            )  # fmt: skip
            for mechanics in self.mechanics.values():
                mechanics.resume(self.progress.settings, self.look.diagnosis.loader)
            self._try_remedies(self.look)
            if self.progress.settings:
                self._prove(self.look.unit)
        except (Interrupted, KeyboardInterrupt) as stop:
            self.interrupted = stop if isinstance(stop, Interrupted) else Interrupted()
            self.ended = f"Ended early by {self.interrupted}."
        except OutOfTime:
            self.ended = f"The budget of {duration(self.options.budget_s)} is used up."
        finally:
            for mechanics in self.mechanics.values():
                mechanics.clean_up(self.progress.settings)
        if self.look is None:
            ended_by, look_ended = self.interrupted or Interrupted(), "the first look was complete"
            if self._resumed_after is None:
                raise ended_by.before(look_ended)
            raise ended_by.before(look_ended, "what was found earlier is still there for --resume")
        if any(trial.screened for trial in self._kept()) and not confirmed(self.proof):
            self.progress.tried[:] = withdrawn(self.progress.tried, self.proof)
            self.proof = None
        if self.proof is None and self.first_kept is not None and len(self._kept()) == 1:
            self.proof = prove(self.first_kept, self.look.unit, self._kept())
            self.ended += " The trial that was kept is the proof: there was no time for another one."
        if not self.interrupted:
            self.journal.write("end", why=self.ended, proof=self.proof.to_dict() if self.proof else None)
        return self._result(self.look)

    def _result(self, look: Look) -> FixResult:
        setup, first, tried = self.runs.setup, look.diagnosis, self.progress.tried
        self.choice.note_untried(tried, self.progress.settings)
        return FixResult(
            command=setup.command,
            before=look.rate,
            unit=look.unit,
            verdict=first.verdict,
            tried=tuple(tried),
            untried=tuple(self.choice.untried.values()),
            proof=self.proof,
            ended=self.ended,
            isolation=setup.isolation.describe(),
            folder=str(setup.folder.absolute()),
            seconds=self.runs.budget.spent_s,
            interrupted=self.interrupted,
            loader=first.loader,
            plans=self._diagnose(look.run, out).plans if (out := refuted(tried)) else first.plans,
            resumed_after=self._resumed_after,
            crowded=crowded(self.runs.contention),
        )

    def _try_remedies(self, look: Look) -> None:
        """Try remedies one at a time, the most promising first; diagnose again after each that is kept."""
        diagnosis = self._with_profiled(look)
        while True:
            remedy = self._next(diagnosis)
            if remedy is None:
                self.ended = nothing_left(self.progress.tried, self.options.budget_s)
                return
            if not self._has_room():
                proof = " and the proof after it" if self._kept() else ""
                shortage = self.runs.budget.shortage(self._trial_runs(), bool(self._kept()))
                budget = duration(self.options.budget_s)
                self.ended = f"The budget of {budget} has no room for another trial{proof}: {shortage}."
                return
            trials, last = self.live.trials(diagnosis, remedy, look)
            if not trials:
                trial, last = self._trial(remedy, look)
                trials = [trial]
            for trial in trials:
                self.progress.tried.append(trial)
                self.journal.write("trial", trial=trial.to_dict())
                self.log.trial(trial)
            if last is not None and last.run is not None and any(trial.outcome == KEPT for trial in trials):
                diagnosis = with_found_by_experiments(self._diagnose(last.run), diagnosis)

    def _with_profiled(self, look: Look) -> Diagnosis:
        """The look's diagnosis with what an earlier profile proposed besides, unless something is kept already."""
        diagnosis = look.diagnosis
        if self._profiled is None or self.progress.settings or not same_threads(self._profiled, look.run):
            return diagnosis
        found = with_profiled(diagnosis, self._diagnose(self._profiled))
        added = [remedy.title for remedy in found.remedies if remedy not in diagnosis.remedies]
        if added:
            self.log.say(f"the profile {self._profiled.id} proposed besides: {'; '.join(added)}")
        return found

    def _next(self, diagnosis: Diagnosis) -> Remedy | None:
        """The most promising of the eligible remedies; None: there is none.

        What may take minutes until it gains, as a compiler does, comes last where the budget has no room for these.
        """
        held = None
        for remedy in self.choice.eligible(diagnosis, self.progress.tried, self.progress.settings):
            longer_s = sum(SETTINGS[name].warm_up_s for name in remedy.settings)
            if not longer_s or self._has_room(longer_s):
                return remedy
            held = held or remedy
        return held

    def _has_room(self, longer_s: float = 0.0) -> bool:
        """True if the budget has room for a trial, with this many seconds beyond the usual ones."""
        return self.runs.budget.room_for_trial(self._trial_runs(), bool(self._kept()), longer_s)

    def _trial_runs(self) -> int:
        """Runs that a trial needs: one pair for the first."""
        return TRIAL_RUNS if self.progress.tried else 2

    def _trial(self, remedy: Remedy, look: Look) -> tuple[Trial, TrialRun | None]:
        """Try a remedy; if memory runs out, the next smaller value. Also returns the last run with it."""
        before_s = self.runs.budget.spent_s
        mechanics = self.mechanics[remedy.mechanics]
        try:
            mechanics.prepare(remedy.settings)
        except FlatoutError as error:
            wall_s = self.runs.budget.spent_s - before_s
            found = Pairs(failed=TrialRun(FAILED, str(error), wall_s))
            return judge(remedy, remedy.settings, found, "", wall_s), None
        found, settings, history = self._pairs(remedy, look.diagnosis)
        trial = judge(remedy, settings, found, history, self.runs.budget.spent_s - before_s)
        trial = replace(trial, restarted=self.live.why_restarted(remedy))
        if trial.ratio is not None:
            trial = mechanics.with_cost(trial, *found.rates(), look.diagnosis.loader)
        if trial.outcome == UNCONFIRMED and trial.ratio is not None and not gains(trial.ratio):
            trial = replace(trial, why=f"{trial.why}: {self.runs.needs(trial.ratio, before_s)}")
        if trial.outcome == KEPT and not self._kept():
            self.first_kept = found
        return trial, found.b[-1] if found.b else None

    def _pairs(self, remedy: Remedy, first: Diagnosis) -> tuple[Pairs, Mapping[str, Any] | None, str]:
        """Pairs of runs at the largest value that fits into memory, that value (None: none fits), and what did not."""
        kept, any_kept = self.progress.settings, bool(self._kept())
        settings: Mapping[str, Any] | None = remedy.settings
        history, lengthened = "", 0
        while True:
            assert settings is not None, "the loop ends when there is no smaller value"
            self.log.say(f"trial: {titled(remedy, settings)} (predicted {interval(remedy.gain)})")
            found = measure_pairs(
                self.runs.run,
                kept,
                combined(kept, settings),
                room=lambda runs: self.runs.room_for_pair(runs, any_kept),
                decided=decided,
            )
            if found.failed and lengthened < _longer(found.failed) and self.runs.lengthen(found.failed.acts_later):
                lengthened += 1
                continue
            if found.failed is None or found.failed.outcome not in (OUT_OF_MEMORY, GUARDED) or found.failed_without:
                return found, settings, history
            history += f"{titled(remedy, settings)}: {found.failed.detail}. "
            settings = smaller(settings, kept, first)
            if settings is None or not self.runs.budget.room_for_trial(TRIAL_RUNS, any_kept):
                return found, None, history

    def _prove(self, unit: str) -> None:
        """Measure the original training against all kept remedies, in separate pairs."""
        budget = self.runs.budget
        if self.first_kept is not None and len(self._kept()) == 1 and not budget.room(TRIAL_RUNS):
            return  # the pairs of its trial are stronger evidence than one more pair
        self.log.say("proof: the training as it was against all that was kept")
        begin_s = budget.spent_s
        found = measure_pairs(self.runs.run, {}, self.progress.settings, room=budget.room, decided=_proved)
        if self.first_kept is not None and len(self._kept()) == 1 and found.ratio() is not None:
            found = found.together(self.first_kept)
        self.proof = prove(found, unit, self._kept())
        screened = any(trial.screened for trial in self._kept())
        if screened and not confirmed(self.proof) and self.proof is not None:
            self.progress.tried[:] = withdrawn(self.progress.tried, self.proof)
            self.proof = None
            if self._kept() and budget.room(2):
                self._prove(unit)
            return
        if self.proof is None:
            self.ended += f" The proof could not be made: {found.failed.detail if found.failed else 'no pair'}"
        elif self.proof.ratio.low <= 1.0 < self.proof.ratio.factor:
            self.ended += f" The proof {self.runs.needs(self.proof.ratio, begin_s, threshold=0.0)}."

    def _kept(self) -> list[Trial]:
        return [trial for trial in self.progress.tried if trial.outcome == KEPT]


def _longer(failed: TrialRun) -> int:
    """How often runs may be doubled for what ended a trial."""
    if failed.acts_later:
        return 3
    return 1 if failed.outcome == TOO_SHORT else 0


def _proved(ratio: Ratio) -> bool:
    """True if the proof needs no further pair: any gain counts, now that each remedy cleared the threshold."""
    return ratio.pairs >= LEAST_PAIRS and ((ratio.resolved and not ratio.distorted) or decided(ratio, threshold=0.0))


def clean(folder: Path) -> None:
    """Remove what only the trials needed, records of runs too; the journal stays."""
    for name in ("cache", "configs", "runs"):
        shutil.rmtree(folder / name, ignore_errors=True)
