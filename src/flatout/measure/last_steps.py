"""The last steps of a profile: the step and the loader each alone, and what of a step grows with the batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from flatout.measure.account_ids import ACCOUNTS
from flatout.probe.contract import DOUBLED, LOADER, REPLAYED, SINGLE, TRIMMED
from flatout.record import ProcessRecord
from flatout.results import Ledger
from flatout.units import duration

_LEAST_BLOCKS = 3
_MOST_SAVED = 0.98  # of a step
_ROUNDS = 7
_BETWEEN_STEPS = ("batch_wait", "epoch_boundary", "validation", "checkpoint", "compile")
_PASSES = ("forward", "loss", "backward")
# Of three to five blocks: their range covers the median of the population at 75 to 94%.


@dataclass(frozen=True)
class Replayed:
    """Steps whose batch was already there; seconds of a step's own part.

    Attributes:
        step_s: median of the blocks' means.
        low_s: of the fastest block.
        high_s: of the slowest one.
        blocks: how many.
        steps: in a block.
        idle: no worker was fetching meanwhile.
    """

    step_s: float
    low_s: float
    high_s: float
    blocks: int
    steps: int
    idle: bool = True


@dataclass(frozen=True)
class Doubled:
    """Steps with each batch joined to itself, beside steps with the batch as it is.

    Attributes:
        samples: of the batch as it is, mean.
        single_s: of a step with it.
        doubled_s: of a step with twice as many.
        fixed: share of a step, 0..1, that does not grow with the batch; median of the blocks.
        fixed_low: of the block with least.
        fixed_high: of the block with most.
        bytes_per_sample: of the GPU's memory; None: there is none, or it was not measured.
        passes: only forward and backward pass ran with twice the samples, apart from the steps.
    """

    samples: float
    single_s: float
    doubled_s: float
    fixed: float
    fixed_low: float
    fixed_high: float
    bytes_per_sample: float | None = None
    passes: bool = False


@dataclass(frozen=True)
class Trimmed:
    """Steps with batches that end with their longest row, beside steps with the batch as it is.

    Attributes:
        saved: share of a step, 0..1, that they save; median of the blocks.
        saved_low: of the block with least.
        saved_high: of the block with most.
    """

    saved: float
    saved_low: float
    saved_high: float


@dataclass(frozen=True)
class LastSteps:
    """All of it. None: not measured.

    Attributes:
        replayed: the device's ceiling.
        doubled: a batch of twice the size.
        trimmed: batches without what is padding in each of their rows.
        loader_bps: batches/s of the loader alone, of new batches: the data's ceiling.
        again_bps: of the same batches again, whose files may be in memory by then.
        same_samples: the data set gave the same when it was asked twice; False: at least one sample differed.
        skipped: why a part was not measured, in the probe's words, by the part.
    """

    replayed: Replayed | None = None
    doubled: Doubled | None = None
    trimmed: Trimmed | None = None
    loader_bps: float | None = None
    again_bps: float | None = None
    same_samples: bool | None = None
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def ceiling(self) -> Replayed | None:
        """The replayed step, unless workers took its cores meanwhile."""
        return self.replayed if self.replayed is not None and self.replayed.idle else None

    @property
    def not_doubled(self) -> str:
        """Why no batch was joined to itself."""
        return self.skipped.get(DOUBLED) or self.skipped.get(REPLAYED) or "no steps were measured after the window"


def read_last_steps(process: ProcessRecord, nothing: str = "") -> LastSteps:
    """What the training process measured at its end.

    Args:
        process: its record.
        nothing: why there may be nothing, where the process itself does not say; empty: not known.
    """
    info: Mapping[str, Any] = process.info.get("last_steps") or {}
    blocks = [(str(change), ns / steps / 1e9, steps) for change, steps, ns in info.get("blocks") or ()]
    replayed = _replayed(blocks, bool(info.get("idle")))
    return LastSteps(
        replayed=replayed,
        doubled=_doubled(blocks, info, replayed),
        trimmed=_trimmed(blocks, replayed),
        loader_bps=_rate(info.get(LOADER)),
        again_bps=_rate(info.get("again")),
        same_samples=same_samples(process),
        skipped=dict(info.get("skipped") or ({} if info or not nothing else {REPLAYED: nothing})),
    )


def same_samples(process: ProcessRecord) -> bool | None:
    """True if the data set gave the same when it was asked twice; None: it was not asked."""
    asked = (process.info.get("last_steps") or {}).get("asked_twice")
    return asked[0] == asked[1] if asked else None


def _rate(counted: list[int] | None) -> float | None:
    return counted[0] / (counted[1] / 1e9) if counted else None


def _replayed(blocks: list[tuple[str, float, int]], idle: bool) -> Replayed | None:
    found = [(step_s, steps) for change, step_s, steps in blocks if change == REPLAYED]
    if len(found) < _LEAST_BLOCKS:
        return None
    times = [step_s for step_s, _ in found]
    return Replayed(median(times), min(times), max(times), len(found), int(median(s for _, s in found)), idle)


def _differences(blocks: list[tuple[str, float, int]], changed: str) -> list[float]:
    """Of each block with a change, the difference from the single blocks on both sides, as a part of these."""
    found = []
    for place, (change, step_s, _) in enumerate(blocks):
        beside = [one for kind, one, _ in blocks[max(place - 1, 0) : place + 2] if kind == SINGLE]
        if change == changed and beside:
            found.append(step_s / (sum(beside) / len(beside)) - 1.0)
    return found


def _watched(blocks: list[tuple[str, float, int]], replayed: Replayed) -> tuple[float, float]:
    """Seconds of a single step, and how much longer it takes than a replayed one.

    Watching exceptions may slow all steps but the replayed ones by the same amount: what a change adds is a difference
    between these, and the whole is the replayed step.
    """
    single_s = median(step_s for change, step_s, _ in blocks if change == SINGLE)
    return single_s, max(single_s / replayed.step_s, 1.0)


def _trimmed(blocks: list[tuple[str, float, int]], replayed: Replayed | None) -> Trimmed | None:
    found = _differences(blocks, TRIMMED)
    if len(found) < _LEAST_BLOCKS or replayed is None:
        return None
    _, watched = _watched(blocks, replayed)
    saved = (-median(found), -max(found), -min(found))
    return Trimmed(*(min(max(part * watched, 0.0), _MOST_SAVED) for part in saved))


def _doubled(
    blocks: list[tuple[str, float, int]], info: Mapping[str, Any], replayed: Replayed | None
) -> Doubled | None:
    growing = _differences(blocks, DOUBLED)
    if len(growing) < _LEAST_BLOCKS or replayed is None or not info.get("kept") or not info.get("samples"):
        return None
    single_s, watched = _watched(blocks, replayed)
    parts = (max(growing), median(growing), min(growing))
    low, middle, high = (min(max(1.0 - part * watched, 0.0), 1.0) for part in parts)
    samples = info["samples"] / info["kept"]
    peaks = info.get("peak_bytes") or {}
    slope = (peaks[DOUBLED] - peaks[SINGLE]) / samples if DOUBLED in peaks and SINGLE in peaks else None
    return Doubled(
        samples=samples,
        single_s=single_s,
        doubled_s=median(step_s for change, step_s, _ in blocks if change == DOUBLED),
        fixed=middle,
        fixed_low=low,
        fixed_high=high,
        bytes_per_sample=slope if slope is not None and slope > 0 else None,
    )


_LEAST_OF_PASSES = 0.5  # of those of a step, that what was timed must take


def with_doubled_input(found: LastSteps, process: ProcessRecord, ledger: Ledger) -> LastSteps:
    """Add the step whose passes were doubled alone, where no whole step was: all but the passes costs the same."""
    info: Mapping[str, Any] = process.info.get("doubled_input") or {}
    pairs = list(zip(info.get("single_ns") or (), info.get("doubled_ns") or (), strict=False))
    if found.doubled is not None or not info:
        return found
    if len(pairs) < _LEAST_BLOCKS or not info.get("samples") or not ledger.steps.count:
        because = info.get("skipped") or "the passes of the model take too long"
        return replace(found, skipped={**found.skipped, DOUBLED: str(because)})
    share = {account.id: account.share for account in ledger.accounts}
    own = sum(share.get(id, 0.0) for id in ACCOUNTS if id not in _BETWEEN_STEPS)
    part = min(sum(share.get(id, 0.0) for id in _PASSES) / own, 1.0) if own > 0 else 0.0
    passes_s, timed_s = part * own * ledger.window_s / ledger.steps.count, median(list(info["single_ns"])) / 1e9
    if timed_s < _LEAST_OF_PASSES * passes_s:
        # Of a model that is called several times a step, one call was; gradients of gradients are made outside of it.
        because = f"the passes that were timed take {duration(timed_s)}, those of a step {duration(passes_s)}"
        return replace(found, skipped={**found.skipped, DOUBLED: because})
    growing = sorted(part * min(max(twice / single - 1.0, 0.0), 1.0) for single, twice in pairs)
    edge = int(len(growing) >= _ROUNDS)  # the second of 7 and the last but one hold the median at 87%
    step_s = own * ledger.window_s / ledger.steps.count
    fixed = 1.0 - median(growing)
    return replace(
        found,
        doubled=Doubled(
            samples=float(info["samples"]),
            single_s=step_s,
            doubled_s=(2.0 - fixed) * step_s,
            fixed=fixed,
            fixed_low=1.0 - growing[-1 - edge],
            fixed_high=1.0 - growing[edge],
            passes=True,
        ),
    )
