"""The verdict on a candidate, from its pairs of runs: faster or slower, and the same training or not."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from flatout.compare.comparison import Comparison
from flatout.compare.ratio import Ratio
from flatout.compare.speed import Speed
from flatout.measure.thresholds import NOISE_SHARE
from flatout.record import Run
from flatout.remedies.proposal import OPTIMISATION
from flatout.trials.decide import ruled_out
from flatout.trials.losses import LossCheck
from flatout.trials.outcome import FAILED, GUARDED, OUT_OF_MEMORY, REFUSED, TOO_SHORT, TrialRun
from flatout.trials.pairs import Pairs
from flatout.trials.sequential import gains
from flatout.trials.try_result import (
    DIFFERS,
    DIVERGED,
    NO_GAIN,
    PROVED,
    SLOWER,
    UNCONFIRMED,
    UNMEASURED,
    Judged,
    Memory,
)

LEAST_PAIRS = 2  # of runs, for any verdict on speed
_OTHER_BATCH = 0.2  # of a batch, where the first losses are the same
_SAME_BATCH = 0.01  # share by which the samples of a step may differ
_VERBS = {
    OUT_OF_MEMORY: "runs out of memory",
    GUARDED: "was ended by a guard",
    REFUSED: "has no effect",
    FAILED: "breaks the training",
    TOO_SHORT: "trains too few steps to compare",
    UNMEASURED: "the runs cannot be compared",
}
_OPEN = 0.10  # a gain that an interval still holds, where no gain was seen
_KEEPING = "sample_cache_bytes"  # the setting of all that is kept from pass to pass


def diverges(pairs: Pairs) -> bool:
    """True if a loss with the change is NaN or infinite where none was without it."""
    finite = all(math.isfinite(loss) for run in pairs.a for loss in run.losses)
    return finite and any(not math.isfinite(loss) for run in pairs.b for loss in run.losses)


def judge(
    title: str,
    files: tuple[str, ...],
    pairs: Pairs,
    semantic_class: str,
    stopped: str = "",
    settings: Iterable[str] = (),
) -> Judged:
    """The verdict.

    Args:
        title: of the candidate.
        files: that it changes.
        pairs: its runs.
        semantic_class: what it may change in the training.
        stopped: why it got no further pair.
        settings: names of those that it sets.
    """
    if pairs.failed is not None:
        return _failed(title, files, pairs.failed, pairs.failed_without)
    ratio = pairs.ratio()
    if ratio is None:
        return Judged(title, UNMEASURED, stopped or "no pair of runs was completed", files)
    speeds = pairs.speeds()
    losses = pairs.check(semantic_class, settings)
    other = "" if semantic_class == OPTIMISATION else _other_work(pairs, *speeds)
    same = losses.passed and not other
    outcome, why = _outcome(ratio, losses, other, diverges(pairs))
    if _KEEPING in settings and outcome in (NO_GAIN, UNCONFIRMED, SLOWER):
        why += (
            "; what is kept in memory gains from the second pass over the data on, and these runs may lie in the first"
        )
    return Judged(
        title=title,
        outcome=outcome,
        why=why,
        files=files,
        ratio=ratio,
        losses=losses,
        same_training=same if other or losses.checked else None,
        comparison=Comparison(speeds[0], speeds[1], ratio),
        memory=(_memory(pairs.a), _memory(pairs.b)),
        stopped=stopped,
    )


def _failed(title: str, files: tuple[str, ...], run: TrialRun, without: bool) -> Judged:
    if without:
        return Judged(title, UNMEASURED, f"the run without it failed: {run.detail}", files)
    return Judged(title, run.outcome, f"{_VERBS.get(run.outcome, 'failed')}: {run.detail}", files)


def _outcome(ratio: Ratio, losses: LossCheck, other: str, diverged: bool) -> tuple[str, str]:
    if diverged:
        return DIVERGED, f"breaks the training: {losses.text}"
    # The interval of one pair knows nothing of a disturbance that lasted as long as a run.
    if ratio.high < 1.0 and ratio.pairs >= LEAST_PAIRS and not other and not ratio.distorted:
        return SLOWER, "slower"
    if ruled_out(ratio) and ratio.pairs >= LEAST_PAIRS and not other:
        if ratio.high <= 1.0 + _OPEN:
            return NO_GAIN, f"no gain that clears {NOISE_SHARE:.0%}"
        return UNCONFIRMED, f"not proved: {ratio.pairs} pairs of runs show no gain, and differ too much to rule it out"
    if not losses.passed or other:
        return DIFFERS, f"not shown to train the same: {other or losses.text}"
    if not gains(ratio):
        return UNCONFIRMED, "not proved: " + (
            "one pair of runs only" if ratio.pairs == 1 else f"{ratio.pairs} pairs of runs leave it open"
        ) + (f": {ratio.disturbed}" if ratio.disturbed else "")
    return PROVED, "faster, and it trains the same"


def _other_work(pairs: Pairs, a: Sequence[Speed], b: Sequence[Speed]) -> str:
    """Why the steps of A and B may not be the same amount of work; empty if they are."""
    alike = pairs.begins_alike()
    if not a[0].batch or not b[0].batch:
        if alike or not (pairs.a[0].losses and pairs.b[0].losses):
            return ""
        return "the samples of a step are not known (no DataLoader fed the steps), and the first losses are others"
    batches = [statistics.median(speed.batch for speed in side if speed.batch) for side in (a, b)]
    apart = abs(batches[1] / batches[0] - 1)
    # Where lengths count as samples, as in batches with the time first, their mean depends on how far a run came.
    if apart > (_OTHER_BATCH if alike else _SAME_BATCH):
        return f"a step has {batches[1]:.4g} samples instead of {batches[0]:.4g}"
    return ""


def _memory(runs: Sequence[TrialRun]) -> Memory:
    found = [peak_memory(run.run) for run in runs if run.run is not None]
    host = [one.host_bytes for one in found if one.host_bytes is not None]
    device = [one.device_bytes for one in found if one.device_bytes is not None]
    return Memory(max(host, default=None), max(device, default=None))


# untested: only by serial tests, which run without coverage.py
def peak_memory(run: Run) -> Memory:
    """The most memory at a time: proportional shares of all processes, and what is used of all GPUs."""
    shares: dict[int, int | None] = {}
    host, device = 0, 0
    for sample in run.system():
        present = {entry["pid"]: entry.get("pss") for entry in sample.get("processes") or ()}
        # Not each process is read in each sample: the latest value counts, and nothing before all have one.
        shares = {pid: share if share is not None else shares.get(pid) for pid, share in present.items()}
        if None not in shares.values():
            host = max(host, sum(share or 0 for share in shares.values()))
        device = max(device, sum(gpu.get("memory_used") or 0 for gpu in sample.get("gpus") or ()))
    return Memory(host or None, device or None)
