"""The catalogue of remedies, one flat list, and the choice of those that a run calls for."""

from __future__ import annotations

from collections.abc import Sequence

from flatout.measure.measured_run import MeasuredRun
from flatout.measure.thresholds import NOISE_SHARE
from flatout.predict.memory_costs import memory_costs
from flatout.predict.rate_model import fit
from flatout.remedies import (
    batches_ahead,
    bigger_batch,
    cache_files,
    channels_last,
    cheaper_epoch_start,
    cheaper_transform,
    checkpoint_less,
    chunked_reading,
    compile_model,
    crop_first,
    cudnn_benchmark,
    even_ranks,
    faster_collate,
    faster_decode,
    fewer_blocking_reads,
    fewer_workers,
    fused_optimizer,
    gradient_accumulation,
    in_order,
    local_copy,
    log_less,
    mixed_precision,
    more_quota,
    num_workers,
    own_handles,
    persistent_workers,
    pin_memory,
    prefetch_factor,
    queue_settings,
    smaller_samples,
    start_method,
    tf32,
    train_on_gpu,
    validate_less,
    work_to_workers,
    worker_threads,
)
from flatout.remedies.plans import bundle
from flatout.remedies.proposal import Context, Proposal, RemedySpec
from flatout.results import Cause, Remedy, RemedyBundle

REMEDIES: tuple[RemedySpec, ...] = (
    num_workers.ENTRY,
    prefetch_factor.ENTRY,
    queue_settings.ENTRY,
    persistent_workers.ENTRY,
    start_method.ENTRY,
    fewer_workers.ENTRY,
    worker_threads.ENTRY,
    local_copy.ENTRY,
    cache_files.ENTRY,
    faster_decode.ENTRY,
    crop_first.ENTRY,
    cheaper_transform.ENTRY,
    batches_ahead.ENTRY,
    work_to_workers.ENTRY,
    log_less.ENTRY,
    checkpoint_less.ENTRY,
    validate_less.ENTRY,
    fewer_blocking_reads.ENTRY,
    bigger_batch.ENTRY,
    gradient_accumulation.ENTRY,
    mixed_precision.ENTRY,
    tf32.ENTRY,
    channels_last.ENTRY,
    compile_model.ENTRY,
    fused_optimizer.ENTRY,
    cudnn_benchmark.ENTRY,
    in_order.ENTRY,
    smaller_samples.ENTRY,
    faster_collate.ENTRY,
    own_handles.ENTRY,
    chunked_reading.ENTRY,
    pin_memory.ENTRY,
    cheaper_epoch_start.ENTRY,
    train_on_gpu.ENTRY,
    more_quota.ENTRY,
    even_ranks.ENTRY,
)

# A remedy whose whole interval stays below this gives nothing that a trial could tell from noise.
_WORTH_SHOWING = 1.0 + NOISE_SHARE
# One that is predicted to slow the run down is no remedy; rounding may put "no change" just below 1.
_NO_HARM = 0.99


def propose(view: MeasuredRun, causes: Sequence[Cause]) -> tuple[tuple[Remedy, ...], tuple[RemedyBundle, ...]]:
    """Remedies for the causes found, largest predicted gain first, and the plans that they make.

    Args:
        view: the measured run.
        causes: in rank order. A remedy that answers several is given to the first of them.
    """
    model = fit(view)
    if model is None:
        return (), ()
    chosen: list[tuple[Remedy, Proposal]] = []
    for entry in REMEDIES:
        for cause in causes:
            if cause.id not in entry.causes:
                continue
            proposal = entry.propose(Context(view, cause, model))
            if proposal is None or (view.by_recipe and proposal.recipe is None):
                continue
            gain = proposal.gain or model.gain(proposal.change, proposal.least, proposal.most)
            if gain.high >= _WORTH_SHOWING and gain.predicted >= _NO_HARM:
                assumed = "".join(f"; {assumption}" for assumption in model.assumptions)
                costs = memory_costs(view, proposal.settings or {})
                remedy = Remedy(
                    id=entry.id,
                    cause=cause.id,
                    title=proposal.title,
                    semantic_class=entry.semantic_class,
                    risk=entry.risk,
                    gain=gain,
                    memory_bytes=proposal.memory_bytes,
                    how=f"flatout train … --set {proposal.recipe}" if view.by_recipe else proposal.how,
                    basis=proposal.basis + assumed,
                    settings=dict(proposal.settings or {}),
                    shm_bytes=costs.shm_bytes,
                    device_bytes=costs.device_bytes,
                    mechanics=entry.mechanics,
                )
                chosen.append((remedy, proposal))
            break
    chosen.sort(key=lambda pair: -pair[0].gain.predicted)
    return tuple(remedy for remedy, _ in chosen), bundle(model, chosen)


__all__ = ["REMEDIES", "Case", "Entry", "Proposal", "propose"]
