"""Judge all causes of a view and put them in order: what to remove first comes first."""

from __future__ import annotations

from dataclasses import replace

from flatout.diagnose.causes import CAUSES
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.thresholds import MATERIAL_SHARE
from flatout.predict.rate_model import fit
from flatout.results import Cause, Evidence, NotMeasured
from flatout.units import percent

HEALTHY = "compute_bound"
_ROUNDING = 0.005  # shares are shown in whole percent

# What these remove is waiting for batches, and nothing else.
OF_WAITING = frozenset(
    (
        "no_workers",
        "too_few_workers",
        "cpu_decode",
        "cpu_transform",
        "storage_latency",
        "storage_bandwidth",
        "small_files",
        "read_amplification",
        "serialized_workers",
        "sample_skew",
        "slow_collate",
        "shallow_prefetch",
    )
)
OF_DATA = OF_WAITING | {"too_many_workers", "cold_cache", "fat_samples", "worker_restart", "epoch_start", "own_input"}

HIDING = 0.3  # of the hidden cause's share: less of it cannot be what the hidden one comes from

# (hider, hidden): while the first stands, removing the second gives less than it seems, or is not the way to begin.
HIDES = (
    ("storage_latency", "cpu_decode"),  # workers that wait for bytes have cores to spare
    ("storage_latency", "cpu_transform"),
    ("storage_latency", "too_few_workers"),  # more workers only overlap the latency
    ("no_workers", "cpu_decode"),  # idle cores come before faster code
    ("no_workers", "cpu_transform"),
    ("too_few_workers", "cpu_decode"),
    ("too_few_workers", "cpu_transform"),
    ("storage_bandwidth", "storage_latency"),
    ("storage_bandwidth", "too_few_workers"),
    ("small_files", "storage_latency"),
    ("small_files", "too_few_workers"),
    ("cold_cache", "storage_latency"),  # what is cold once is no property of the storage
    ("cold_cache", "storage_bandwidth"),
    ("cold_cache", "small_files"),
    # What is read without need comes before the speed of reading it, and before more workers that read it.
    ("read_amplification", "storage_latency"),
    ("read_amplification", "storage_bandwidth"),
    ("read_amplification", "small_files"),
    ("read_amplification", "too_few_workers"),
    ("read_amplification", "cpu_decode"),
    ("read_amplification", "cpu_transform"),
    ("serialized_workers", "too_few_workers"),  # more workers wait in the same queue
    ("serialized_workers", "cpu_decode"),
    ("serialized_workers", "cpu_transform"),
    ("slow_collate", "cpu_transform"),
    ("sample_skew", "shallow_prefetch"),
    ("sample_skew", "too_few_workers"),
    ("sample_skew", "cpu_decode"),  # the time of a few samples, not of all
    ("sample_skew", "cpu_transform"),
    ("shallow_prefetch", "too_few_workers"),  # their mean would do
    ("storage_latency", "shallow_prefetch"),
    ("throttled", "too_many_workers"),
    ("too_many_workers", "cpu_decode"),  # CPU times measured on crowded cores are not the functions' own
    ("too_many_workers", "cpu_transform"),
)


def judge(view: MeasuredRun) -> tuple[tuple[Cause, ...], tuple[NotMeasured, ...]]:
    """Causes in rank order, and those that could not be judged."""
    found: list[Cause] = []
    missing: list[NotMeasured] = []
    for function in CAUSES:
        answer = function(view)
        if isinstance(answer, Cause):
            found.append(_within_account(view, answer))
        elif answer is not None:
            missing.append(answer)
    return rank(found), tuple(missing)


def _within_account(view: MeasuredRun, cause: Cause) -> Cause:
    """No more than the training waits for batches, but for what its own threads wait for cores that fetching takes."""
    wait = view.ledger.share("batch_wait")
    if cause.id not in OF_WAITING or cause.share <= wait:
        return cause
    model = fit(view)
    queued = model.now.queue_s / model.now.total_s if model is not None else 0.0
    share = min(cause.share, wait + queued)
    if share - wait < _ROUNDING:
        return replace(cause, share=share)
    text = (
        f"also frees the cores that the training computes on: it waits {percent(wait)} of the time for batches, "
        f"and {percent(queued)} for a core"
    )
    why = Evidence(text, {"batch_wait": wait, "core_wait": queued})
    return replace(cause, share=share, evidence=(why, *cause.evidence))


def rank(causes: list[Cause]) -> tuple[Cause, ...]:
    """Largest share first; hidden causes after all others, since removing them alone gives less than it seems.

    The healthy answer leads where no fault is material, and otherwise comes last. Beside a material fault of the data
    it is no answer.
    """
    by_id = {cause.id: cause for cause in causes}
    faults = [replace(cause, hidden_by=_hider(cause, by_id)) for cause in causes if cause.id != HEALTHY]
    ranked = sorted(faults, key=lambda cause: (cause.hidden_by is not None, -cause.share))
    if HEALTHY in by_id and not any(cause.id in OF_DATA and cause.share >= MATERIAL_SHARE for cause in faults):
        healthy_leads = all(cause.share < MATERIAL_SHARE for cause in faults)
        ranked.insert(0 if healthy_leads else len(ranked), by_id[HEALTHY])
    return tuple(ranked)


def _hider(cause: Cause, by_id: dict[str, Cause]) -> str | None:
    """The largest cause that must go before this one; a much smaller one is no reason to begin with it."""
    hiders = (by_id[hider] for hider, hidden in HIDES if hidden == cause.id and hider in by_id)
    material = [hider for hider in hiders if hider.share >= max(MATERIAL_SHARE, HIDING * cause.share)]
    return max(material, key=lambda hider: hider.share).id if material else None
