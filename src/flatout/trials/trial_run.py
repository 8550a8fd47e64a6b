"""One run of a trial: starts the user's command, isolated, guarded and recorded, and gathers the facts."""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flatout.compare.speed import Speed, speed_of
from flatout.errors import Interrupted, RecordError
from flatout.measure.thresholds import LEAST_STEPS
from flatout.measure.training import find_training
from flatout.measure.worker_records import loader_settings, worker_count
from flatout.probe.contract import LOSSES_VARIABLE, REDIRECT_VARIABLE, SEED_VARIABLE, SETTINGS_VARIABLE
from flatout.probe.settings import SETTINGS
from flatout.record import Run, load_run
from flatout.runner import Bounds, Outcome, record
from flatout.runner.command import with_probe
from flatout.runner.failure import explain
from flatout.trials.file_changes import FileChanges
from flatout.trials.guards import Guard
from flatout.trials.isolation import NAMESPACE, OFFLINE, Isolation, scratch_folder, wrapped
from flatout.trials.locations import SettingLocations
from flatout.trials.losses import LEAST_LOSSES, losses_of
from flatout.trials.outcome import Execution, TrialRun, classify

LOG = "output.log"  # the command's own output, run after run


@dataclass(frozen=True)
class TrialSetup:
    """Setup shared by the runs of a fix.

    Attributes:
        command: the user's.
        folder: of this fix: scratch and caches.
        runs_dir: where runs are recorded.
        bounds: of each run.
        isolation: of the machine.
        steps: approximate number of a run; a run that warms up first must reach it.
        locations: of the user's settings; those without a location are injected.
        environment: variables of the command besides the present ones.
        changes: files that are changed in the private view of a run.
        experiments: of a run that is diagnosed: after the window, single changes are tried and a few steps traced.
        seed: runs with the same one draw the same numbers from generators that the command leaves unseeded; None:
            each draws others.
    """

    command: tuple[str, ...]
    folder: Path
    runs_dir: Path
    bounds: Bounds
    isolation: Isolation
    steps: int = 80
    locations: SettingLocations | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    changes: FileChanges = field(default_factory=FileChanges)
    experiments: bool = False
    seed: int | None = None

    def subfolder(self, name: str) -> Path:
        """The absolute path of a folder below ``folder``, which is made if it is missing."""
        path = (self.folder / name).absolute()
        path.mkdir(parents=True, exist_ok=True)
        return path


def run_once(setup: TrialSetup, settings: Mapping[str, Any], deadline_s: float = math.inf) -> TrialRun:
    """Run the command once with these settings, and judge the run.

    Args:
        setup: of the runs.
        settings: by name.
        deadline_s: on the monotonic clock; the run is then ended, as by a guard.
    """
    return classify(execute(setup, settings, deadline_s))


def run_blocks(
    setup: TrialSetup, settings: Mapping[str, Any], plan: Mapping[str, Any], deadline_s: float = math.inf
) -> TrialRun:
    """Run the command once with these settings, and switch others in blocks of steps.

    Args:
        setup: of the runs; its bounds end the run where the blocks take longer.
        settings: by name, from the start on.
        plan: of the blocks, see ``flatout.trials.live.Plan``.
        deadline_s: as above.
    """
    return classify(execute(setup, settings, deadline_s, plan))


def execute(
    setup: TrialSetup,
    settings: Mapping[str, Any],
    deadline_s: float = math.inf,
    plan: Mapping[str, Any] | None = None,
) -> Execution:
    """Run the command once with these settings; see ``run_once`` and ``run_blocks``."""
    begin_s = time.monotonic()
    names = setup.locations.located(settings) if setup.locations is not None else set()
    located = {name: value for name, value in settings.items() if name in names}
    injected = {name: value for name, value in settings.items() if name not in names}
    outcome, unread = _recorded(setup, settings, injected, deadline_s, plan)
    wall_s = time.monotonic() - begin_s
    if signal := outcome.signal or outcome.late_signal:
        shutil.rmtree(outcome.run, ignore_errors=True)
        raise Interrupted(signal)
    if outcome.guarded:
        return Execution(stop=outcome.stop, guarded=outcome.guarded, wall_s=wall_s)
    run = load_run(outcome.run)
    window_end_ns = run.info.get("window_end_ns")
    if setup.experiments and isinstance(window_end_ns, int):
        wall_s = window_end_ns / 1e9 - begin_s  # what a run without experiments takes
    applied, refused = _injected(run)
    trained = outcome.stop != "failed" and bool(outcome.live.first_step_ns)
    speed, no_speed = _speed(run) if trained else (None, "")
    return Execution(
        stop=outcome.stop,
        exit_code=outcome.exit_code,
        trained=trained,
        explanation="" if trained else explain(outcome)[0],
        exceptions=_exceptions(run),
        injected=injected,
        located=located,
        unread=unread,
        applied=applied,
        refused=refused,
        loader=_loader(run) if located and trained else {},
        speed=speed,
        no_speed=no_speed,
        losses=tuple(losses_of(run)),
        run=run,
        wall_s=wall_s,
    )


def _recorded(
    setup: TrialSetup,
    settings: Mapping[str, Any],
    injected: Mapping[str, Any],
    deadline_s: float,
    plan: Mapping[str, Any] | None,
) -> tuple[Outcome, tuple[str, ...]]:
    """The recording, and the changed files if none of them was read."""
    words = list(setup.command)
    if setup.locations is not None:
        words = setup.locations.command_with(settings, setup.subfolder("configs"))
    words = list(with_probe(words))
    environment = _environment(setup, injected)
    with scratch_folder(setup.folder) as scratch, (setup.folder / LOG).open("ab") as log:
        if setup.isolation.kind == NAMESPACE:
            setup.runs_dir.mkdir(parents=True, exist_ok=True)
            if setup.changes.files:
                words = setup.changes.installing(words, setup.subfolder("changes") / "list.json")
            words = wrapped(words, scratch, (setup.runs_dir.absolute(), setup.subfolder("cache")))
        else:
            assert not setup.changes.files, "without a private view, a change would be one of the user's files"
            environment[REDIRECT_VARIABLE] = str(scratch)
        guard = Guard(scratch)
        try:
            outcome = record(
                words,
                setup.runs_dir,
                _bounds(setup, settings),
                quiet=True,
                output=log,
                trace=setup.experiments,
                experiments=setup.experiments,
                environment=environment,
                guard=lambda: "the budget is used up" if time.monotonic() >= deadline_s else guard.look(),
                shown=setup.command,
                plan=plan,
            )
            return outcome, setup.changes.unread(scratch)
        finally:
            guard.close()


def _bounds(setup: TrialSetup, settings: Mapping[str, Any]) -> Bounds:
    """Bounds of one run: seconds count from the first step, so a warm-up needs more of them, and an end by steps.

    Where other work makes the steps slower than they were, the run lasts until there are enough to compare.
    """
    bounds = replace(setup.bounds, least_steps=max(LEAST_STEPS + 1, LEAST_LOSSES))
    warm_up_s = sum(SETTINGS[name].warm_up_s for name in settings)
    if not warm_up_s or bounds.seconds is None:
        return bounds
    steps = setup.steps + sum(SETTINGS[name].warm_up_steps for name in settings)
    return replace(bounds, seconds=bounds.seconds + warm_up_s, steps=steps)


def _environment(setup: TrialSetup, injected: Mapping[str, Any]) -> dict[str, str]:
    port = str(_free_port())
    seeded = {} if setup.seed is None else {SEED_VARIABLE: str(setup.seed)}
    if setup.seed is not None and "PYTHONHASHSEED" not in os.environ:
        seeded["PYTHONHASHSEED"] = str(setup.seed + 1)  # the order of sets; 0 would be none at all
    return {
        **OFFLINE,
        **seeded,
        LOSSES_VARIABLE: "1",
        SETTINGS_VARIABLE: json.dumps(dict(injected)),
        # A distributed job elsewhere on this machine holds the usual port.
        "MASTER_PORT": port,
        "PET_MASTER_PORT": port,
        # Shared by all trials: only the first one compiles.
        "TORCHINDUCTOR_CACHE_DIR": os.environ.get("TORCHINDUCTOR_CACHE_DIR")
        or str(setup.subfolder("cache") / "inductor"),
        **setup.environment,
    }


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


# untested: only by serial tests, which run without coverage.py
def _speed(run: Run) -> tuple[Speed | None, str]:
    try:
        return speed_of(run, settle=True), ""
    except RecordError as error:
        return None, str(error)


# untested: only by serial tests, which run without coverage.py
def _exceptions(run: Run) -> tuple[str, ...]:
    found = [(process.info.get("exit") or {}).get("exception") for process in run.processes]
    return tuple(str(text) for text in found if text)


# untested: only by serial tests, which run without coverage.py
def _injected(run: Run) -> tuple[dict[str, Any], dict[str, str]]:
    """Settings that took effect in some process, and setting -> reason of those refused in some process."""
    applied: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for process in run.processes:
        applied.update(process.info.get("applied") or {})
        refused.update(process.info.get("refused") or {})
    return applied, refused


# untested: only by serial tests, which run without coverage.py
def _loader(run: Run) -> dict[str, Any]:
    """The recorded settings of the training's DataLoader."""
    training = find_training(run)
    if training is None or training.loader is None:
        return {}
    found = {**loader_settings(training, training.loader), "num_workers": worker_count(training, training.loader)}
    return {name: found[name] for name, setting in SETTINGS.items() if setting.recorded and name in found}
