"""Build the ledger: exclusive accounts that add up to the wall time of a training."""

from __future__ import annotations

import numpy as np

from flatout.measure.account_details import Window, code_seconds, explain
from flatout.measure.accounts import Charged, charge
from flatout.measure.epochs import build_epochs
from flatout.measure.loader_processes import LoaderProcesses, loader_processes
from flatout.measure.startup import launcher_s, startup_accounts
from flatout.measure.training import Training, find_training
from flatout.measure.usage import queued_share
from flatout.record import Run
from flatout.results import Epoch, Ledger, Steps

COLD_UNKNOWN = "{which}: not measured whether the data came from storage or from memory"


def ledger_of(run: Run) -> Ledger | None:
    """The ledger of a run's training: its wall time by account. None if no complete training step was recorded."""
    training = find_training(run)
    return build_ledger(run, training, loader_processes(run, training)) if training else None


def build_ledger(run: Run, training: Training, side: LoaderProcesses | None, charged: Charged | None = None) -> Ledger:
    """Divide the wall time of a training into exclusive accounts.

    Args:
        run: the record.
        training: its training side.
        side: the processes that fetch its batches; None without a DataLoader.
        charged: the training thread's time by account, if it is known already.
    """
    if charged is None:
        charged = charge(training, side.teams if side else ())
    begin, finish = training.window_begin_ns, training.window_end_ns
    # Fetches of a DataLoader have counters of their own; for input made in between there are those of the thread.
    first_thread = side is None and training.thread == 0
    queued = queued_share(run.system(), begin, finish, training.process.pid) if first_thread else None
    window = Window(training, charged, side, begin, finish, queued)
    seconds, imports_s, unaccounted_s = code_seconds(window)
    accounts = [
        explain(window, id, amount, imports_s if id == "host_other" else 0.0)
        for id, amount in seconds.items()
        if amount > 0
    ]
    epochs = build_epochs(training, charged, side)
    launch_s = launcher_s(run, training)
    return Ledger(
        wall_s=(training.finish_ns - training.begin_ns) / 1e9 + launch_s,
        startup_s=(training.window_begin_ns - training.begin_ns) / 1e9 + launch_s,
        startup=startup_accounts(training, charged, launch_s),
        window_s=window.seconds,
        accounts=tuple(sorted(accounts, key=lambda account: -account.seconds)),
        unaccounted_s=unaccounted_s,
        ending_s=(training.finish_ns - training.window_end_ns) / 1e9,
        epochs=epochs,
        steps=_steps(training),
        notes=(*training.notes, *charged.notes, *_notes(training, epochs)),
    )


def _steps(training: Training) -> Steps:
    """Distribution of the steps inside the window; all zero when the window holds none (a note says so)."""
    chosen = training.in_window
    duration, samples = training.steps.duration_s[chosen], training.steps.samples[chosen]
    if not len(duration):
        return Steps(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    updated = training.steps.updates[chosen]
    updates = int(updated.sum())
    # The window may end before the optimizer steps that follow its last ones.
    followed = int(np.flatnonzero(updated)[-1]) + 1 if updates else 0
    window_s = training.window_ns / 1e9
    # The work of the other ranks in the same time: they share this clock.
    begin, finish = training.window_begin_ns, training.window_end_ns
    inside = [table.samples[(table.work_end_ns > begin) & (table.work_end_ns <= finish)] for table in training.others]
    beside = [amounts for amounts in inside if len(amounts)]
    known = samples.any() and all(amounts.any() for amounts in beside)
    every = int(samples.sum()) + sum(int(amounts.sum()) for amounts in beside)
    return Steps(
        count=len(duration),
        samples=int(samples.sum()),
        median_s=float(np.median(duration)),
        p95_s=float(np.percentile(duration, 95)),
        min_s=float(duration.min()),
        max_s=float(duration.max()),
        rate_sps=float(samples.sum()) / window_s if window_s else 0.0,
        accumulation=followed / updates if updates else 1.0,
        processes=1 + len(beside),
        all_rate_sps=every / window_s if window_s and known else 0.0,
    )


def _notes(training: Training, epochs: tuple[Epoch, ...]) -> list[str]:
    """Notes on what the ledger cannot know."""
    notes = []
    count = len(training.steps.start_ns[training.in_window])
    if not count:
        notes.append("only one step was complete: there is no window to divide")
    elif training.loader is None and training.steps.samples[training.in_window].any():
        notes.append(
            "no DataLoader fed the steps: samples are those that the model was given, its input's first dimension"
        )
    elif not training.steps.samples[training.in_window].any():
        reason = "no DataLoader fed the steps" if training.loader is None else "no tensor was found in its batches"
        notes.append(f"samples and samples/s: not measured, because {reason}")
    if count and not training.steps.updates[training.in_window].any():
        notes.append("batches per optimizer step: not measured, because no optimizer step was seen in the window")
    unknown = [str(epoch.index + 1) for epoch in epochs if epoch.cold is None and epoch.reads_data]
    if unknown:
        which = f"epoch{'s' if len(unknown) > 1 else ''} {', '.join(unknown)}"
        notes.append(COLD_UNKNOWN.format(which=which))
    return notes
