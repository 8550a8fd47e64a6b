"""Live trials of a fix: several remedies in one running training, before any has runs of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flatout.probe.settings import combined
from flatout.results import Diagnosis, Remedy
from flatout.trials.fix_look import Look
from flatout.trials.fix_options import Options
from flatout.trials.fix_runs import FixRuns
from flatout.trials.live import Plan, not_live
from flatout.trials.outcome import OK, TrialRun
from flatout.trials.progress import ProgressLog
from flatout.trials.result import KEPT, Trial, TrialLog, merged
from flatout.trials.screening import (
    LONG_START_S,
    MOST_TOGETHER,
    BlocksRunner,
    Costs,
    bounded,
    judged,
    screen,
    undecided,
)
from flatout.trials.select import Choice, key
from flatout.units import counted, duration


class LiveTrials:
    """Tries what can be switched while the training runs, where its start takes long."""

    def __init__(
        self,
        runs: FixRuns,
        choice: Choice,
        progress: TrialLog,
        options: Options,
        log: ProgressLog,
        run_blocks: BlocksRunner,
    ) -> None:
        """Try nothing yet.

        Args:
            runs: of the fix.
            choice: of its remedies.
            progress: its trials.
            options: the user's limits.
            log: of its progress.
            run_blocks: makes the run of a live trial.
        """
        self._runs, self._choice, self._progress, self._log = runs, choice, progress, log
        self._wanted, self._run_blocks = options.live, run_blocks
        self._restarted: dict[tuple[Any, ...], str] = {}

    def why_restarted(self, remedy: Remedy) -> str:
        """Why runs of their own have to decide a remedy; empty: no live trial was made of it."""
        return self._restarted.get(key(remedy), "")

    def trials(self, diagnosis: Diagnosis, remedy: Remedy, look: Look) -> tuple[list[Trial], TrialRun | None]:
        """Trials in one process of this remedy and of others, if it can be switched; a run with what they gained."""
        costs = Costs(
            self._runs.start_s, self._runs.budget.run_s, look.step_s, self._runs.budget.left_s, look.step_spread
        )
        candidates = self._candidates(diagnosis, remedy, costs)
        if not candidates:
            return [], None
        spent_s, kept = self._runs.budget.spent_s, self._progress.settings
        findings = screen(
            self._run, [one.settings for one in candidates], kept, look.diagnosis.loader, costs,
            len(self._progress.tried),
        )  # fmt: skip
        each_s = (self._runs.budget.spent_s - spent_s) / len(findings)
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
        self._log.say(f"gained: {'; '.join(trial.title for trial in gained)}; a run from the start")
        last = self._runs.run(combined(kept, merged(gained)))
        if last.outcome == OK:
            return trials, last
        for candidate in candidates:
            if any(trial.title == candidate.title for trial in gained):
                self._restarted[key(candidate)] = f"a run with it from the start ended: {last.detail}"
        return [trial for trial in trials if trial.outcome != KEPT], None

    def _candidates(self, diagnosis: Diagnosis, remedy: Remedy, costs: Costs) -> list[Remedy]:
        """Remedies to try in one process, this one first; none where it is to be tried by runs of its own."""
        if not (costs.start_s >= LONG_START_S if self._wanted is None else self._wanted):
            return []
        if why := not_live(remedy.settings):
            self._restarted.setdefault(key(remedy), why)
        eligible = self._choice.eligible(diagnosis, self._progress.tried, self._progress.settings)
        found = [
            one for one in eligible if not (one.mechanics or not_live(one.settings) or key(one) in self._restarted)
        ]
        return found[:MOST_TOGETHER] if remedy in found else []

    def _run(self, settings: Mapping[str, Any], plan: Plan) -> TrialRun:
        """The run of a live trial."""
        self._log.say(
            f"live trial of {counted(len(plan.candidates), 'remedy', 'remedies')} in one process, about "
            f"{duration(plan.needed_s)} after its start"
        )
        setup = bounded(self._runs.setup, plan)
        return self._run_blocks(setup, settings, plan.to_dict(), deadline_s=self._runs.budget.deadline_s)
