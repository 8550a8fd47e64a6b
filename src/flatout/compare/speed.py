"""The training speed of one recorded run, and its uncertainty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flatout.compare.block_error import relative_error
from flatout.compare.pauses import Pauses, pauses
from flatout.compare.steady import warm_up
from flatout.errors import RecordError
from flatout.measure.crowding import Contention, measure_contention
from flatout.measure.ledger import build_ledger
from flatout.measure.loader_processes import loader_processes
from flatout.measure.thresholds import LEAST_STEPS
from flatout.measure.training import Training, find_training, largest_module
from flatout.probe import events as kinds
from flatout.record import Run, load_run
from flatout.results import Ledger


@dataclass(frozen=True)
class Speed:
    """One run.

    Attributes:
        run: its id.
        command: what was run.
        rate: samples a second, waits and gaps included; steps a second where ``unit`` says so.
        unit: "samples/s", or "steps/s" if the samples per batch are unknown.
        error: relative standard error of the rate, from the variation of the steps (see ``block_error``).
        batch: samples of a usual step, the median: the last one of a pass may have fewer; None if unknown.
        ledger: its wall time by account.
        steps_s: duration of each step that counts.
        failure: that its command failed, in words; None: it did not.
        threads: intra-op threads of the training process; None: not recorded.
        contention: with other processes for the cores; None: not measured.
        steps_rate: steps a second.
        guessed: no DataLoader fed the steps; their samples are those that a module was given.
        counted_s: the time that the rate is of.
        amounts: samples of each step that counts, or 1.
        pauses: by account, the validations and checkpoints in that time.
        recorded_s: seconds a sample in the ledger; 0: as the rate says.
        calls: samples of a usual call of the network, and backward passes a step, where these are guessed.
        evened: by account, seconds a sample that pauses are taken to have, as those of a pair of runs had.
    """

    run: str
    command: tuple[str, ...]
    rate: float
    unit: str
    error: float
    batch: float | None
    ledger: Ledger
    steps_s: NDArray[np.float64]
    failure: str | None = None
    threads: int | None = None
    contention: Contention | None = None
    steps_rate: float = 0.0
    guessed: bool = False
    counted_s: float = 0.0
    amounts: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    pauses: Mapping[str, Pauses] = field(default_factory=dict)
    evened: Mapping[str, float] = field(default_factory=dict)
    recorded_s: float = 0.0
    calls: tuple[float, float] | None = None

    def has_batches_of(self, other: Speed) -> bool:
        """Whether the network is given as many samples in a call as in another run, and a step has as many gradients.

        How often it is called in a step may differ: without a test loss, a step with one and the same batch has half
        as many calls.
        """
        return self.calls is not None and self.calls == other.calls

    def with_batches_of(self, other: Speed) -> Speed:
        """This speed where its steps are known to be of the same samples as another run's.

        Which module is given how many samples may differ, as where one is called without gradients now.
        """
        if not (self.guessed and other.guessed and other.batch and self.steps_rate and other.steps_rate):
            return self
        rate = self.steps_rate * other.rate / other.steps_rate
        return replace(self, rate=rate, unit=other.unit, batch=other.batch)

    def seconds_of(self, account: str, amount: float) -> float:
        """Seconds of an account in which the run did ``amount`` samples (or steps)."""
        if account in self.evened:
            return self.evened[account] * amount
        found = self.ledger.account(account)
        share = (found.seconds if found else 0.0) / self.ledger.window_s
        return share * (self.recorded_s or 1.0 / self.rate) * amount


def alike(a: Speed, b: Speed) -> tuple[Speed, Speed]:
    """Both in one unit.

    Raises:
        RecordError: the samples of one of them are unknown, so that only its steps could be counted.
    """
    if a.unit != b.unit:
        unknown = a if a.batch is None else b
        raise RecordError(
            f"the samples of {unknown.run} are not known (no DataLoader fed the steps): nothing to compare by"
        )
    return a, b


def measure(path: Path) -> Speed:
    """Read a run's folder.

    Raises:
        RecordError: it cannot be read, or holds fewer than LEAST_STEPS steps.
    """
    return speed_of(load_run(path))


def speed_of(run: Run, settle: bool = False) -> Speed:
    """The training speed of a run.

    Args:
        run: the record.
        settle: leave out its warm-up, which is found in its steps (see ``flatout.compare.steady``).

    Raises:
        RecordError: the record holds fewer than LEAST_STEPS steps.
    """
    training = find_training(run)
    ledger = build_ledger(run, training, loader_processes(run, training)) if training else None
    steps = ledger.steps.count if ledger else 0
    if training is None or ledger is None or steps < LEAST_STEPS:
        raise RecordError(
            f"{run.id} holds {steps} training steps in its window, and {LEAST_STEPS} are needed to compare: "
            "record it for longer"
        )
    chosen = training.in_window
    durations = training.steps.duration_s[chosen]
    amounts = training.steps.samples[chosen].astype(float)
    window_s = ledger.window_s
    known = bool(amounts.all())
    guessed = not training.loaders
    if not known:
        amounts = np.ones(len(durations))
    start = warm_up(durations) if settle else 0
    if start:
        durations, amounts, window_s = durations[start:], amounts[start:], window_s - float(durations[:start].sum())
    # Time between passes belongs to no step: it is spread evenly over the steps.
    between_s = max(window_s - float(durations.sum()), 0.0) / len(durations)
    try:
        error = relative_error(np.ones(len(durations)) if guessed else amounts, durations + between_s)
    except ValueError as fault:
        raise RecordError(f"{run.id} holds no steps to compare by: {fault}") from None
    return Speed(
        run=run.id,
        command=tuple(run.command),
        rate=float(amounts.sum()) / window_s,
        unit="samples/s" if known else "steps/s",
        error=error,
        batch=float(np.median(amounts)) if known else None,
        ledger=ledger,
        steps_s=durations,
        failure=run.ending.failure,
        threads=threads if isinstance(threads := training.process.info.get("threads"), int) else None,
        contention=measure_contention(run.system(), training.window_begin_ns, training.window_end_ns),
        steps_rate=len(durations) / window_s,
        guessed=guessed,
        counted_s=window_s,
        amounts=amounts,
        pauses=pauses(training, start),
        calls=_calls(training, steps) if guessed else None,
    )


def _calls(training: Training, steps: int) -> tuple[float, float] | None:
    """Samples of a usual call of the network, and backward passes a step; None: no module's inputs are known."""
    inputs = training.kind(kinds.INPUT)
    if not len(inputs):
        return None
    of_network = inputs["arg"] == largest_module(inputs, training.kind(kinds.FORWARD))
    begin, end = training.window_begin_ns, training.window_end_ns
    passes = training.kind(kinds.BACKWARD)["start"]
    return float(np.median(inputs["a"][of_network])), round(float(((passes >= begin) & (passes < end)).sum()) / steps)
