"""The catalogue of remedies, one flat list, and the selection of those that apply to a run."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from flatout.measure.thresholds import NOISE_SHARE
from flatout.predict.context import Context
from flatout.predict.measured import bounding
from flatout.predict.memory_costs import memory_costs
from flatout.remedies.batch import bigger_batch, gradient_accumulation
from flatout.remedies.compiling import dynamic_shapes, fixed_shapes, steady_values, whole_graphs
from flatout.remedies.decoding import decoded_once, faster_decode, smaller_files
from flatout.remedies.device import (
    channels_last,
    cudnn_benchmark,
    fewer_blocking_reads,
    fused_optimizer,
)
from flatout.remedies.features import features_once
from flatout.remedies.gradients import frozen_clipped_parameters, frozen_parameters, kept_gradients
from flatout.remedies.host import (
    batches_ahead,
    cheaper_epoch_start,
    cheaper_input,
    checkpoint_less,
    indices_at_once,
    log_less,
    more_makers,
    unsynced_metrics,
    validate_less,
    validate_without_gradients,
    work_to_workers,
)
from flatout.remedies.interpolation import linear_interpolation
from flatout.remedies.keeping import samples_once
from flatout.remedies.layer_forms import (
    csr_products,
    fuse_attention,
    fuse_functions,
    merge_layers,
    pairs_by_product,
    product_after_loop,
    quick_conv,
    sort_rows,
)
from flatout.remedies.layouts import one_layout
from flatout.remedies.logits import classes_that_occur, logits_where_needed
from flatout.remedies.machine import cores_of_its_own, even_ranks, more_quota, pin_memory, train_on_gpu
from flatout.remedies.memoizing import samples_memoized
from flatout.remedies.memory import huge_pages, keep_memory
from flatout.remedies.normalizing import late_normalize
from flatout.remedies.plans import bundle, with_overlaps
from flatout.remedies.precision import mixed_precision, tf32
from flatout.remedies.preparation import (
    cheaper_reads,
    cheaper_transform,
    columns_as_arrays,
    crop_first,
    stored_samples,
    tokenise_once,
    transformed_once,
)
from flatout.remedies.prepared_items import prepared_once
from flatout.remedies.proposal import Proposal, RemedySpec
from flatout.remedies.queue import (
    faster_collate,
    in_order,
    own_handles,
    prefetch_factor,
    queue_settings,
    shorter_samples,
    smaller_samples,
)
from flatout.remedies.recurrence import whole_sequence
from flatout.remedies.repeated_work import compute_once, keep_activations, report_in_some_steps, split_weight
from flatout.remedies.reporting import fewer_checkpoints, metrics_at_end, report_less
from flatout.remedies.slices import unbind, write_at_once
from flatout.remedies.slow_kernels import quick_bce, quick_dropout
from flatout.remedies.sparse_matrices import sparse_products
from flatout.remedies.step import fewer_operators, float32, sooner_switch, thread_to_process
from flatout.remedies.step_experiments import (
    debugging_off,
    fewer_collections,
    fewer_hooks,
    nondeterministic,
    threads,
    without_debug_code,
)
from flatout.remedies.storage import cache_files, chunk_cache, chunked_reading, local_copy, mapped_arrays
from flatout.remedies.streams import select_first
from flatout.remedies.tables import tables_once, texts_once
from flatout.remedies.unneeded_work import (
    first_places,
    group_by_length,
    one_batch,
    sparse_embeddings,
    sparse_optimizer,
    trim_padding,
)
from flatout.remedies.volumes import device_augmentation, staged_volumes
from flatout.remedies.whole_batches import whole_batches
from flatout.remedies.whole_model import compile_model, cuda_graphs
from flatout.remedies.workers import (
    fewer_workers,
    num_workers,
    persistent_workers,
    start_method,
    without_workers,
    worker_threads,
)
from flatout.results import Cause, Gain, Remedy, RemedyBundle

REMEDIES: tuple[RemedySpec, ...] = (
    num_workers,
    prefetch_factor,
    queue_settings,
    persistent_workers,
    start_method,
    fewer_workers,
    worker_threads,
    without_workers,
    local_copy,
    cache_files,
    decoded_once,
    prepared_once,
    tables_once,
    texts_once,
    select_first,
    faster_decode,
    smaller_files,
    crop_first,
    late_normalize,
    cheaper_transform,
    linear_interpolation,
    stored_samples,
    transformed_once,
    samples_once,
    samples_memoized,
    device_augmentation,
    whole_batches,
    columns_as_arrays,
    tokenise_once,
    cheaper_reads,
    batches_ahead,
    more_makers,
    cheaper_input,
    work_to_workers,
    report_less,
    metrics_at_end,
    log_less,
    unsynced_metrics,
    checkpoint_less,
    fewer_checkpoints,
    validate_less,
    validate_without_gradients,
    debugging_off,
    without_debug_code,
    nondeterministic,
    fewer_hooks,
    fewer_collections,
    threads,
    keep_memory,
    huge_pages,
    fewer_blocking_reads,
    thread_to_process,
    sooner_switch,
    dynamic_shapes,
    fixed_shapes,
    steady_values,
    whole_graphs,
    fewer_operators,
    float32,
    one_layout,
    trim_padding,
    group_by_length,
    frozen_parameters,
    frozen_clipped_parameters,
    kept_gradients,
    one_batch,
    features_once,
    whole_sequence,
    merge_layers,
    quick_conv,
    fuse_functions,
    csr_products,
    sort_rows,
    product_after_loop,
    fuse_attention,
    pairs_by_product,
    compute_once,
    report_in_some_steps,
    split_weight,
    keep_activations,
    quick_dropout,
    quick_bce,
    first_places,
    logits_where_needed,
    classes_that_occur,
    sparse_products,
    unbind,
    write_at_once,
    sparse_embeddings,
    sparse_optimizer,
    bigger_batch,
    gradient_accumulation,
    mixed_precision,
    tf32,
    channels_last,
    compile_model,
    cuda_graphs,
    fused_optimizer,
    cudnn_benchmark,
    in_order,
    shorter_samples,
    smaller_samples,
    faster_collate,
    own_handles,
    mapped_arrays,
    chunk_cache,
    chunked_reading,
    staged_volumes,
    pin_memory,
    cheaper_epoch_start,
    indices_at_once,
    train_on_gpu,
    more_quota,
    cores_of_its_own,
    even_ranks,
)

# A remedy whose whole interval stays below this cannot be distinguished from noise in a trial.
_WORTH_SHOWING = 1.0 + NOISE_SHARE
# A predicted slowdown is no remedy; rounding may put "no change" just below 1.
_NO_HARM = 0.99


def propose(
    context: Context, causes: Sequence[Cause], refuted: Collection[str] = ()
) -> tuple[tuple[Remedy, ...], tuple[RemedyBundle, ...]]:
    """Remedies for the causes found, largest predicted gain first, and the plans made of them.

    Args:
        context: the measured run with its model.
        causes: in rank order. A remedy that answers several is given to the first of them.
        refuted: remedies that plans leave out, as trials of them ended badly.
    """
    if context.fitted is None:
        return (), ()
    chosen: list[tuple[Remedy, Proposal]] = []
    for spec in REMEDIES:
        answer = _first_proposal(context, spec, causes)
        if answer is None:
            continue
        cause, proposal = answer
        gain = proposal.gain or context.fitted.gain(proposal.change, proposal.least, proposal.most)
        if gain.high >= _WORTH_SHOWING and gain.predicted >= _NO_HARM:
            chosen.append((_remedy(context, spec, cause, proposal, gain), proposal))
    chosen.sort(key=lambda pair: -pair[0].gain.predicted)
    chosen = with_overlaps(context.fitted, chosen)
    planned = [(remedy, proposal) for remedy, proposal in chosen if remedy.id not in refuted]
    return tuple(remedy for remedy, _ in chosen), bundle(context.fitted, planned)


def _first_proposal(context: Context, spec: RemedySpec, causes: Sequence[Cause]) -> tuple[Cause, Proposal] | None:
    """The first cause that the remedy answers with a proposal; in a training by recipe, with a key of the recipe."""
    for cause in causes:
        proposal = spec.propose(context, cause) if cause.id in spec.causes else None
        if proposal is not None and (proposal.recipe is not None or not context.run.by_recipe):
            return cause, proposal
    return None


def _remedy(context: Context, spec: RemedySpec, cause: Cause, proposal: Proposal, gain: Gain) -> Remedy:
    costs = memory_costs(context.run, proposal.settings or {})
    assumptions = context.model.assumptions if proposal.assumes else ()
    assumed = "".join(f"; {assumption}" for assumption in assumptions)
    bounded = bounding(context, proposal.change)
    return Remedy(
        id=spec.id,
        cause=cause.id,
        title=proposal.title,
        semantic_class=spec.semantic_class,
        risk=spec.risk,
        gain=gain,
        memory_bytes=proposal.memory_bytes,
        how=f"flatout train … --set {proposal.recipe}" if context.run.by_recipe else proposal.how,
        basis=proposal.basis + assumed + (f"; {bounded}" if bounded else ""),
        settings=dict(proposal.settings or {}),
        shm_bytes=costs.shm_bytes,
        device_bytes=costs.device_bytes,
        mechanics=spec.mechanics,
    )


__all__ = ["REMEDIES", "propose"]
