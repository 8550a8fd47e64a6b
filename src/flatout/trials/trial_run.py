"""One run of a trial: the user's command, isolated and guarded, and what came of it."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flatout.compare.speed import Speed, speed_of
from flatout.diagnosis import diagnose
from flatout.errors import RecordError
from flatout.record import Run, load_run
from flatout.runner import Bounds, record
from flatout.runner.failure import explain
from flatout.trials.guards import Guard
from flatout.trials.isolation import NAMESPACE, Isolation, scratch_folder, wrapped
from flatout.trials.locations import SettingLocations
from flatout.trials.losses import losses_of

OK, OUT_OF_MEMORY, GUARDED, FAILED, REFUSED, INTERRUPTED = "ok", "oom", "guarded", "failed", "refused", "interrupted"
_MEMORY = re.compile(
    r"out of memory|OutOfMemory|MemoryError|unable to allocate|Bus error|insufficient shared memory", re.I
)
COMPILE_S, COMPILE_STEPS = 120.0, 10  # that compiling may take beside the measured window
LOG = "output.log"  # what the command printed, run after run
_KILLED = 137  # 128 + SIGKILL: nobody but the kernel's OOM killer sends that here
# Experiment trackers that know a variable for it keep what they are told on this machine.
OFFLINE = {
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "NEPTUNE_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
    "COMET_START_ONLINE": "0",
    "MLFLOW_TRACKING_URI": "file:./mlruns",
    "SWANLAB_MODE": "offline",
}


@dataclass(frozen=True)
class TrialSetup:
    """How sides are run.

    Attributes:
        command: the user's.
        folder: of this fix: scratch and caches.
        runs_dir: where runs are recorded.
        bounds: of each run.
        isolation: of the machine.
        steps: about as many as a run has; with compilation, which takes time at first, it has to make as many.
        places: where settings of the user's own are; what has none is injected.
    """

    command: tuple[str, ...]
    folder: Path
    runs_dir: Path
    bounds: Bounds
    isolation: Isolation
    steps: int = 80
    places: SettingLocations | None = None


@dataclass(frozen=True)
class TrialRun:
    """What came of one run.

    Attributes:
        outcome: OK, or why it does not count.
        detail: one sentence; empty when it counts.
        wall_s: from its start to its end.
        speed: how fast; None when it does not count.
        losses: of each backward pass.
        run: the record; None when nothing was recorded.
        changed: settings that took effect.
    """

    outcome: str
    detail: str
    wall_s: float
    speed: Speed | None = None
    losses: tuple[float, ...] = ()
    run: Run | None = None
    changed: Mapping[str, Any] = field(default_factory=dict)


def run_once(
    plan: TrialSetup,
    settings: Mapping[str, Any],
    deadline_s: float = math.inf,
) -> TrialRun:
    """Run the command once with these settings.

    Args:
        plan: how.
        settings: by name.
        deadline_s: on the monotonic clock: the run is ended then, as by a guard.
    """
    begin_s = time.monotonic()
    placed = plan.places.placed(settings) if plan.places is not None else set()
    injected = {name: value for name, value in settings.items() if name not in placed}
    with scratch_folder(plan.folder) as scratch:
        words = list(plan.command)
        if plan.places is not None:
            words = plan.places.command_with(settings, _folder(plan, "configs"))
        environment = _environment(plan, injected)
        if plan.isolation.kind == NAMESPACE:
            plan.runs_dir.mkdir(parents=True, exist_ok=True)
            words = wrapped(words, scratch, (plan.runs_dir.absolute(), _folder(plan, "cache")))
        else:
            environment["FLATOUT_REDIRECT"] = str(scratch)
        guard = Guard(scratch)
        log = (plan.folder / LOG).open("ab")
        try:
            outcome = record(
                words,
                plan.runs_dir,
                _bounds(plan, settings),
                quiet=True,
                output=log,
                trace=False,
                environment=environment,
                guard=lambda: "the budget is used up" if time.monotonic() >= deadline_s else guard.look(),
                shown=plan.command,
            )
        finally:
            guard.close()
            log.close()
    wall_s = time.monotonic() - begin_s
    if outcome.stop in ("interrupted", "terminated"):
        shutil.rmtree(outcome.run, ignore_errors=True)
        return TrialRun(INTERRUPTED, "ended by Ctrl-C", wall_s)
    if outcome.guarded:
        return TrialRun(GUARDED, outcome.guarded, wall_s)
    run = load_run(outcome.run)
    if outcome.stop == "failed" or not outcome.live.first_step_ns:
        told = " ".join([explain(outcome)[0], *(text for text in _exceptions(run))])
        memory = _MEMORY.search(told) or outcome.exit_code == _KILLED
        return TrialRun(OUT_OF_MEMORY if memory else FAILED, explain(outcome)[0], wall_s, run=run)
    changed, refused = _settings_of(run)
    missing = [name for name in injected if name not in changed]
    if missing:
        whys = "; ".join(f"{name}: {refused.get(name, 'nothing in this training takes it')}" for name in missing)
        return TrialRun(REFUSED, whys, wall_s, run=run)
    loader = diagnose(run).loader if placed else {}
    for name in placed & loader.keys():
        if loader[name] != settings[name]:
            why = f"{name} is {loader[name]} in the DataLoader, though {settings[name]} was written where it is set"
            return TrialRun(REFUSED, why, wall_s, run=run)
    try:
        speed = speed_of(run, settle=True)
    except RecordError as error:
        return TrialRun(FAILED, str(error), wall_s, run=run)
    return TrialRun(OK, "", wall_s, speed, tuple(losses_of(run)), run, changed)


def _bounds(plan: TrialSetup, settings: Mapping[str, Any]) -> Bounds:
    """Of one run: the seconds begin with the first step, and a model is compiled in the first ones."""
    if "compile" not in settings or plan.bounds.seconds is None:
        return plan.bounds
    return replace(plan.bounds, seconds=plan.bounds.seconds + COMPILE_S, steps=plan.steps + COMPILE_STEPS)


def _environment(plan: TrialSetup, settings: Mapping[str, Any]) -> dict[str, str]:
    port = str(_free_port())
    return {
        **OFFLINE,
        "FLATOUT_LOSSES": "1",
        "FLATOUT_SETTINGS": json.dumps(dict(settings)),
        # A distributed job elsewhere on this machine holds the usual port.
        "MASTER_PORT": port,
        "PET_MASTER_PORT": port,
        # Kept from trial to trial: only the first one compiles.
        "TORCHINDUCTOR_CACHE_DIR": os.environ.get("TORCHINDUCTOR_CACHE_DIR")
        or str(_folder(plan, "cache") / "inductor"),
    }


def _folder(plan: TrialSetup, name: str) -> Path:
    folder = (plan.folder / name).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _exceptions(run: Run) -> list[str]:
    found = [(process.info.get("exit") or {}).get("exception") for process in run.processes]
    return [str(text) for text in found if text]


def _settings_of(run: Run) -> tuple[dict[str, Any], dict[str, str]]:
    """Those that took effect in some process, and the reasons of those that did not."""
    changed: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for process in run.processes:
        changed.update(process.info.get("applied") or {})
        refused.update(process.info.get("refused") or {})
    return changed, refused
