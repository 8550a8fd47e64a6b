"""``flatout fix``: look, try one remedy after the other on top of what was kept, prove the whole."""

from __future__ import annotations

import math
import shutil
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flatout.compare.ratio import Ratio
from flatout.diagnose.diagnosis import diagnose
from flatout.diagnose.result import Diagnosis, Remedy
from flatout.diagnose.thresholds import NOISE_SHARE
from flatout.errors import CommandError, UsageError
from flatout.recording import Bounds
from flatout.remedies.proposal import IDENTICAL
from flatout.report.quantities import duration, factor, interval
from flatout.trials import pairs as pairing
from flatout.trials.isolation import remove
from flatout.trials.journal import Journal
from flatout.trials.keeping import PLACED_ONLY
from flatout.trials.losses import LossCheck
from flatout.trials.pairs import Pairs, measure_pairs
from flatout.trials.result import DROPPED, KEPT, Fixed, Proof, Tried
from flatout.trials.side import GUARDED, INTERRUPTED, LOG, OK, OUT_OF_MEMORY, REFUSED, Plan, Side, run_side
from flatout.trials.smaller import smaller
from flatout.trials.telling import Telling

LOOK_S = 20.0  # of the first run, which is diagnosed
STEPS = 80  # of each run of a trial,
LEAST_S, MOST_S = 3.0, 30.0  # within these bounds
LEAST_RUNS = 5  # a look and one pair of a trial, and one of the proof


@dataclass(frozen=True)
class Options:
    """What the user allows.

    Attributes:
        allowed: semantic classes of remedies that may be kept.
        budget_s: for all of it.
        seconds: of each run of a trial; None: as long as STEPS steps take.
        staged: "REAL=COPY": where a copy of the data lies already; None: nowhere.
    """

    allowed: frozenset[str] = frozenset({IDENTICAL})
    budget_s: float = 600.0
    seconds: float | None = None
    staged: str | None = None


class _OutOfTime(Exception):
    """The budget is used up in the middle of a run."""


class Fixing:
    """One fix, from the first look to the proof."""

    def __init__(self, plan: Plan, options: Options, journal: Journal, tell: Telling) -> None:
        self.plan, self.options, self.journal, self.tell = plan, options, journal, tell
        self.begin_s = time.monotonic()
        self.deadline_s = self.begin_s + options.budget_s
        self.progress = journal.progress()
        self.untried: dict[str, tuple[str, str]] = {}
        self.side_s = 0.0
        self.ended = ""
        self.first: Diagnosis | None = None
        self.before, self.unit = 0.0, "samples/s"
        self.proof: Proof | None = None
        self.first_kept: Proof | None = None  # what the trial of the only remedy that was kept proves by itself
        self.interrupted = False
        for left in plan.folder.glob("scratch-*"):  # of one that was killed
            remove(left)

    def run(self) -> Fixed:
        """Do it all.

        Raises:
            CommandError: the command fails, or trains no step.
            UsageError: the budget is too small for one pair of runs.
        """
        try:
            diagnosis = self._look()
            self._try_remedies(diagnosis)
            if self.progress.settings:
                self._prove()
        except KeyboardInterrupt:
            self.interrupted, self.ended = True, "Ended early by Ctrl-C."
        except _OutOfTime:
            self.ended = f"The budget of {duration(self.options.budget_s)} is used up."
        if self.proof is None and self.first_kept is not None and len(self._kept()) == 1:
            self.proof = self.first_kept
            self.ended += " The trial that was kept is the proof: there was no time for another one."
        if self.first is None:
            raise KeyboardInterrupt
        if not self.interrupted:
            self.journal.write("end", why=self.ended, proof=self.proof.to_dict() if self.proof else None)
        return Fixed(
            command=self.plan.command,
            before=self.before,
            unit=self.unit,
            verdict=self.first.verdict,
            tried=tuple(self.progress.tried),
            untried=tuple(self.untried.values()),
            proof=self.proof,
            ended=self.ended,
            isolation=self.plan.isolation.told(),
            folder=str(self.plan.folder.absolute()),
            seconds=time.monotonic() - self.begin_s,
            interrupted=self.interrupted,
            loader=self.first.loader,
            plans=self.first.plans,
        )

    # --- the first look ---

    def _look(self) -> Diagnosis:
        """Measure the training as it is, or with what a killed fix had kept."""
        looked = next((line for line in self.journal.read() if line["kind"] == "look"), None)
        self.tell.say("the training as it is" if looked is None else "going on after the trials that were made")
        seconds = min(LOOK_S, self.options.budget_s / LEAST_RUNS)
        # Slow steps need longer for a distribution, but no longer than the budget has for them.
        bounds = Bounds(seconds=seconds, first_step_within_s=max(self.options.budget_s / 3, 30.0))
        side = run_side(replace(self.plan, bounds=bounds), self.progress.settings)
        if side.outcome == INTERRUPTED:
            raise KeyboardInterrupt
        if side.outcome != OK or side.speed is None or side.run is None:
            raise CommandError(
                f"the training as it is cannot be measured: {side.detail}; it printed: {self._printed()}"
            )
        found = diagnose(side.run)
        ledger = found.ledger
        assert ledger is not None, "a run whose speed is known has a ledger"
        self.first = found
        if looked is None:
            self.before, self.unit = side.speed.rate, side.speed.unit
            self.journal.write("look", rate=self.before, unit=self.unit, verdict=found.verdict)
        else:
            self.before, self.unit = looked["rate"], looked["unit"]
            self.first = replace(found, verdict=looked["verdict"])
        window_s = self.options.seconds or min(max(STEPS * ledger.steps.median_s, LEAST_S), MOST_S)
        self.side_s = max(side.wall_s - ledger.window_s, 0.0) + window_s
        # The window shrinks before a budget is refused.
        spare_s = self._left_s() - (LEAST_RUNS - 1) * self.side_s
        if spare_s < 0 and not self.options.seconds:
            shorter = max(window_s + spare_s / (LEAST_RUNS - 1), LEAST_S, 10 * ledger.steps.median_s)
            self.side_s += shorter - window_s
            window_s = shorter
        if self._left_s() < 2 * self.side_s and not self.progress.tried:
            raise UsageError(
                f"--budget {duration(self.options.budget_s)} is too small for one pair of runs: the look took "
                f"{duration(side.wall_s)}, and a pair takes {duration(2 * self.side_s)} more; give at least "
                f"{duration(math.ceil((side.wall_s + 4.2 * self.side_s) / 10) * 10)}"
            )
        self.plan = replace(
            self.plan,
            bounds=Bounds(seconds=window_s, first_step_within_s=bounds.first_step_within_s),
            steps=max(int(window_s / ledger.steps.median_s), 10) if ledger.steps.median_s > 0 else STEPS,
        )
        self.tell.say(f"{side.speed.rate:,.1f} {side.speed.unit}; {found.verdict}")
        return found

    # --- trials ---

    def _try_remedies(self, diagnosis: Diagnosis) -> None:
        """One at a time, largest predicted gain first; after each that is kept, look at what holds back now."""
        while True:
            remedy = self._next(diagnosis)
            if remedy is None:
                if not self.ended:
                    self.ended = "No remedy is left whose predicted gain a trial could tell from noise."
                return
            if not self._room(2, proof=True):
                self.untried[remedy.title] = (remedy.title, "no time left in the budget")
                self.ended = f"The budget of {duration(self.options.budget_s)} has no room for another trial."
                return
            tried, last = self._trial(remedy)
            if tried is None:
                continue
            self.progress.tried.append(tried)
            self.journal.write("trial", trial=tried.to_dict())
            self.tell.trial(tried)
            if tried.outcome == KEPT and last is not None and last.run is not None:
                diagnosis = diagnose(last.run)

    def _next(self, diagnosis: Diagnosis) -> Remedy | None:
        done = {_key(trial.remedy, trial.settings) for trial in self.progress.tried}
        for found in diagnosis.remedies:
            remedy, why = self._with_copy(found), None
            if remedy.gain.high < 1.0 + 2 * NOISE_SHARE:
                continue
            if not remedy.settings or self._has_no_place(remedy):
                why = f"has to be done by hand: {remedy.how}"
            elif remedy.semantic_class not in self.options.allowed:
                why = f"changes what is trained ({remedy.semantic_class}): --allow {remedy.semantic_class} tries it"
            if why:
                self.untried[remedy.title] = (f"{remedy.title}, predicted {interval(remedy.gain)}", why)
            elif _key(remedy.id, remedy.settings) not in done and self._new(remedy):
                return remedy
        return None

    def _with_copy(self, remedy: Remedy) -> Remedy:
        """The copy of the data that there is already can be read in a trial."""
        if remedy.id != "local_copy" or self.options.staged is None:
            return remedy
        return replace(remedy, settings={"read_from": self.options.staged})

    def _has_no_place(self, remedy: Remedy) -> bool:
        """Whether it needs a setting of the user's own that was not found."""
        places = self.plan.places.placed(remedy.settings) if self.plan.places is not None else set()
        return any(name in PLACED_ONLY and name not in places for name in remedy.settings)

    def _new(self, remedy: Remedy) -> bool:
        """Whether it would change anything that was not tried or kept at that value."""
        kept = self.progress.settings
        return any(kept.get(name) != value for name, value in remedy.settings.items())

    def _trial(self, remedy: Remedy) -> tuple[Tried | None, Side | None]:
        """Try a remedy; where memory does not suffice, the next smaller value."""
        begin_s = time.monotonic()
        settings: Mapping[str, Any] | None = remedy.settings
        history = ""
        while settings is not None:
            self.tell.say(f"trial: {_titled(remedy, settings)} (predicted {interval(remedy.gain)})")
            kept = self.progress.settings
            found = measure_pairs(
                self._side, kept, {**kept, **settings}, room=lambda runs: self._room(runs, proof=True), decided=_decided
            )
            if found.failed is None or found.failed.outcome not in (OUT_OF_MEMORY, GUARDED) or found.failed_without:
                break
            history += f"{_titled(remedy, settings)}: {found.failed.detail}. "
            settings = smaller(settings, kept, self.first)
            if settings is None or not self._room(2, proof=True):
                settings = None
        if settings is None:
            outcome = found.failed.outcome if found.failed else DROPPED
            return self._tried(remedy, remedy.settings, outcome, history.strip(), None, "", begin_s, found), None
        return self._judge(remedy, settings, found, history, begin_s)

    def _judge(
        self, remedy: Remedy, settings: Mapping[str, Any], found: Pairs, history: str, begin_s: float
    ) -> tuple[Tried, Side | None]:
        if found.failed is not None:
            side = "without it, the run" if found.failed_without else "with it, the run"
            verb = "was not changed" if found.failed.outcome == REFUSED else "ended"
            why = f"{history}{side} {verb}: {found.failed.detail}"
            return self._tried(remedy, settings, found.failed.outcome, why, None, "", begin_s, found), None
        ratio = found.ratio()
        assert ratio is not None, "without a failure there is a pair"
        losses = found.check(remedy.semantic_class)
        if not pairing.gains(ratio):
            why = f"{history}no gain that clears {NOISE_SHARE:.0%}: {_measured(ratio)}"
            outcome = DROPPED
        elif not losses.passed:
            why, outcome = f"{history}faster, but the losses: {losses.text}", DROPPED
        else:
            why, outcome = f"{history}{_measured(ratio)}", KEPT
            if not self._kept():
                self.first_kept = self._proved(found, ratio, losses)
        return self._tried(remedy, settings, outcome, why, ratio, losses.text, begin_s, found), found.b[-1]

    def _tried(
        self,
        remedy: Remedy,
        settings: Mapping[str, Any],
        outcome: str,
        why: str,
        ratio: Ratio | None,
        loss: str,
        begin_s: float,
        found: Pairs,
    ) -> Tried:
        return Tried(
            remedy=remedy.id,
            title=_titled(remedy, settings),
            semantic_class=remedy.semantic_class,
            settings=dict(settings),
            predicted=remedy.gain,
            outcome=outcome,
            why=why,
            ratio=ratio,
            loss=loss,
            wall_s=time.monotonic() - begin_s,
            how=remedy.how,
            stalled=found.stalled,
        )

    # --- the proof ---

    def _prove(self) -> None:
        """The training as it was against all that was kept, in pairs of their own."""
        self.tell.say("proof: the training as it was against all that was kept")
        found = measure_pairs(
            self._side, {}, self.progress.settings, room=self._room, decided=lambda ratio: ratio.pairs >= 2
        )
        ratio = found.ratio()
        if ratio is None or not found.a:
            self.ended += f" The proof could not be made: {found.failed.detail if found.failed else 'no pair'}"
            return
        loosest = max((trial.semantic_class for trial in self._kept()), key=_LOOSENESS.index)
        self.proof = self._proved(found, ratio, found.check(loosest))

    def _proved(self, found: Pairs, ratio: Ratio, losses: LossCheck) -> Proof:
        rates = [[side.speed.rate for side in sides if side.speed] for sides in (found.a, found.b)]
        before, after = (statistics.median(values) for values in rates)
        return Proof(before, after, ratio, self.unit, losses.text, losses.passed)

    def _kept(self) -> list[Tried]:
        return [trial for trial in self.progress.tried if trial.outcome == KEPT]

    # --- runs and time ---

    def _side(self, settings: Mapping[str, Any]) -> Side:
        """One run, its record removed unless it may be diagnosed; Ctrl-C and the end of the budget end all."""
        left_s = self._left_s()
        if left_s <= 1.0:
            raise _OutOfTime
        bounds = replace(self.plan.bounds, first_step_within_s=min(self.plan.bounds.first_step_within_s, left_s + 1))
        side = run_side(replace(self.plan, bounds=bounds), settings, deadline_s=self.deadline_s)
        if side.outcome == INTERRUPTED:
            raise KeyboardInterrupt
        if side.outcome == GUARDED and time.monotonic() >= self.deadline_s:
            raise _OutOfTime
        self.side_s = 0.5 * self.side_s + 0.5 * side.wall_s if side.outcome == OK else self.side_s
        return side

    def _printed(self) -> str:
        """The last line of the command's own output."""
        lines = (self.plan.folder / LOG).read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "nothing")

    def _left_s(self) -> float:
        return self.deadline_s - time.monotonic()

    def _room(self, runs: int, proof: bool = False) -> bool:
        """Whether so many runs fit; ``proof``: and the proof after them, of two pairs unless the budget is small."""
        kept_back = 4 if self.options.budget_s > _AMPLE_RUNS * self.side_s else 2
        return self._left_s() >= _MARGIN * (runs + (kept_back if proof else 0)) * self.side_s


_AMPLE_RUNS = 12  # a budget for so many has room for a proof of two pairs
_MARGIN = 1.1  # runs do not all take the same time
_LOOSENESS = ("identical", "numerics", "data", "optimisation")


def _decided(ratio: Ratio) -> bool:
    """No further pair: it gains, it surely does not, or its best case is noise."""
    return pairing.gains(ratio) or ratio.high < 1.0 + NOISE_SHARE or ratio.factor < 1.0 + 0.5 * NOISE_SHARE


def _key(remedy: str, settings: Mapping[str, Any]) -> tuple[str, tuple[tuple[str, str], ...]]:
    return remedy, tuple(sorted((name, str(value)) for name, value in settings.items()))


def _measured(ratio: Ratio) -> str:
    text = f"measured {factor(ratio.factor)} ({factor(ratio.low)} to {factor(ratio.high)})"
    return f"{text} in {ratio.pairs} pair{'s' if ratio.pairs > 1 else ''}"


def _titled(remedy: Remedy, settings: Mapping[str, Any]) -> str:
    if dict(settings) == dict(remedy.settings):
        return remedy.title
    return f"{remedy.title}, at {', '.join(f'{name}={value}' for name, value in settings.items())}"


def clean(folder: Path) -> None:
    """Remove what only the trials needed; the journal stays."""
    for name in ("cache", "configs", "runs"):
        shutil.rmtree(folder / name, ignore_errors=True)
