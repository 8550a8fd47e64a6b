"""The time before the end of the first step, by account."""

from __future__ import annotations

import numpy as np

from flatout.measure.account_ids import ACCOUNTS, IMPORTS, UNACCOUNTED
from flatout.measure.accounts import Charged
from flatout.measure.samples import Samples, frames_of, top_lines, weigh_lines
from flatout.measure.timeline import Flags
from flatout.measure.training import Training
from flatout.probe import events as kinds
from flatout.record import Run
from flatout.results import Account

# Children of the start-up: id -> label.
LABELS = {
    "launcher": "launcher",
    "imports": "interpreter and imports",
    "loader_start": "starting the loader (workers)",
    "first_batch": "first batch",
    "first_step": "first step's compute",
    "compile": "compiling",
    "validation": "validation, or another loader, before training",
    "checkpoint": "checkpoints",
    "other": "other code before the first step",
}
CHILD_OF_ACCOUNT = {
    "epoch_boundary": "loader_start",
    "batch_wait": "first_batch",
    "h2d": "first_step",
    "forward": "first_step",
    "loss": "first_step",
    "backward": "first_step",
    "optimizer": "first_step",
    "device_sync": "first_step",
    "collective": "first_step",
    "compile": "compile",
    "validation": "validation",
    "checkpoint": "checkpoint",
}


# Until a process starts that is not launched by another: less is the time of starting any process.
LAUNCHED_S = 0.2


def launcher_s(run: Run, training: Training) -> float:
    """Seconds from the start of the command to that of the training's process: torchrun, a shell script; else 0."""
    began = run.info.get("start_ns")
    seconds = 0.0 if began is None else (training.begin_ns - began) / 1e9
    return seconds if seconds >= LAUNCHED_S else 0.0


def startup_accounts(training: Training, charged: Charged, launch_s: float) -> tuple[Account, ...]:
    """Exclusive accounts of the start-up, largest first; they add up to it, the launcher's time included."""
    begin, finish = training.begin_ns, training.window_begin_ns
    total = (finish - begin) / 1e9 + launch_s
    # Until the first import is recorded, the interpreter itself was starting.
    imports = training.kind(kinds.IMPORT)["start"]
    loading_until = int(min(max(imports.min(), begin), finish)) if len(imports) else begin
    codes = charged.seconds(loading_until, finish)
    seconds = dict.fromkeys(LABELS, 0.0)
    seconds["launcher"] = launch_s
    for code, id in enumerate(ACCOUNTS):
        seconds[CHILD_OF_ACCOUNT.get(id, "other")] += float(codes[code])
    seconds["other"] += float(codes[UNACCOUNTED])
    seconds["imports"] = float(codes[IMPORTS]) + (loading_until - begin) / 1e9
    gaps = _gap_samples(charged, loading_until, finish)
    # Imports that no span covers show in the stacks: they go through importlib.
    importing = _importing(gaps)
    imported = float(gaps.weight[importing].sum() / gaps.weight.sum()) if len(gaps) else 0.0
    seconds["imports"] += seconds["other"] * imported
    seconds["other"] *= 1.0 - imported
    lines = top_lines(weigh_lines(gaps.take(~importing)), seconds["other"])
    accounts = [
        Account(
            f"startup.{id}",
            LABELS[id],
            amount,
            amount / total if total else 0.0,
            (),
            lines if id == "other" else (),
        )
        for id, amount in seconds.items()
        if amount > 0
    ]
    return tuple(sorted(accounts, key=lambda account: -account.seconds))


def _gap_samples(charged: Charged, begin: int, finish: int) -> Samples:
    """Stack samples inside [begin, finish) that no span covers."""
    inside = (charged.samples.time_ns >= begin) & (charged.samples.time_ns < finish) & (charged.sample_piece >= 0)
    return charged.samples.take(inside & (charged.kind()[charged.sample_piece] == 0))


def _importing(samples: Samples) -> Flags:
    """Samples taken while a module was being imported."""
    stacks = {
        id: any("importlib" in str(frame[0]) for frame in frames_of(samples.names, id))
        for id in np.unique(samples.stack).tolist()
    }
    return np.array([stacks[id] for id in samples.stack.tolist()], bool)
