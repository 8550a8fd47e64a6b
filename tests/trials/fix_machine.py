"""Fixes whose runs start no command: rates follow from the settings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flatout.errors import Interrupted
from flatout.results import Diagnosis, Gain, Remedy
from flatout.results import RemedyBundle as Bundle
from flatout.runner import Bounds
from flatout.trials.fix_options import Options
from flatout.trials.fixing import Fixing
from flatout.trials.isolation import NAMESPACE, Isolation
from flatout.trials.journal import begin, resume
from flatout.trials.outcome import TrialRun
from flatout.trials.progress import ProgressLog
from flatout.trials.result import FixResult
from flatout.trials.trial_run import TrialSetup
from tests.trials.made_runs import ledger, trial_run

COMMAND = ("python", "train.py")


def remedy(id: str, gain: float, semantic_class: str = "identical", **settings: Any) -> Remedy:
    return Remedy(
        id, "c", f"do {id}", semantic_class, "low", Gain(gain, gain * 0.9, gain * 1.1), 0, f"write {id}", "", settings
    )


class Machine:
    """Runs no command: rates follow from the settings."""

    def __init__(self, remedies: list[Remedy], factors: dict[Any, Any]) -> None:
        self.remedies, self.factors = remedies, factors
        self.calls: list[dict[str, Any]] = []
        self.now_s = 0.0
        self.look = Path("nowhere")
        self.plans: tuple[Bundle, ...] = ()

    def run(self, setup: TrialSetup, settings: Mapping[str, Any], deadline_s: float = 0.0) -> TrialRun:
        self.calls.append(dict(settings))
        self.now_s += 5.0
        rate = 100.0 + 0.1 * (len(self.calls) % 3)
        losses = [1.0] * 40
        for name, value in settings.items():
            made = self.factors.get((name, value), self.factors.get(name, 1.0))
            if isinstance(made, TrialRun):
                return made
            if made in ("diverges", "few losses"):
                losses = [9.0] * 40 if made == "diverges" else [1.0] * 7
                made = 2.0
            if made is KeyboardInterrupt or isinstance(made, Interrupted):
                raise made
            rate *= made
        found = trial_run(rate, losses)
        run = SimpleNamespace(processes=(), path=self.look)
        return TrialRun(found.outcome, "", 5.0, found.speed, found.losses, run=run)  # type: ignore[arg-type]

    def diagnose(self, run: object, refuted: Collection[str] = ()) -> Diagnosis:
        plans = [replace(one, remedies=tuple(t for t in one.remedies if t[3:] not in refuted)) for one in self.plans]
        return Diagnosis(
            "run", "run", COMMAND, "It waits.", ledger(), (), (), tuple(self.remedies), (), "", "",
            plans=tuple(plan for plan in plans if plan.remedies),
            loader={"num_workers": 1, "batch_size": 8, "prefetch_factor": 2},
        )  # fmt: skip


def fixing(
    tmp_path: Path,
    machine: Machine,
    options: Options | None = None,
    going_on: bool = False,
    quiet: bool = True,
    profiled: Any = None,
) -> Fixing:
    journal = resume(tmp_path, COMMAND) if going_on else begin(tmp_path, COMMAND)
    setup = TrialSetup(COMMAND, journal.folder, tmp_path / "runs", Bounds(), Isolation(NAMESPACE))
    return Fixing(
        setup,
        options or Options(),
        journal,
        ProgressLog(quiet),
        run_once=machine.run,
        profiled=profiled,
        diagnose=machine.diagnose,
        clock=lambda: machine.now_s,
    )


def fixed(tmp_path: Path, machine: Machine, options: Options | None = None, going_on: bool = False) -> FixResult:
    return fixing(tmp_path, machine, options, going_on).run()
