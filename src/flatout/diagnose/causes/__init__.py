"""All causes, in one flat list."""

from __future__ import annotations

from flatout.diagnose.cause import CauseSpec
from flatout.diagnose.causes.compiling import graph_breaks, recompilation
from flatout.diagnose.causes.device import compute_bound, device_sync, small_batch
from flatout.diagnose.causes.frozen_features import frozen_features
from flatout.diagnose.causes.gradients import discarded_gradients, unused_gradients
from flatout.diagnose.causes.host import checkpoint, epoch_start, main_process_work, own_input, validating, writing_logs
from flatout.diagnose.causes.layer_forms import (
    broadcast_pairs,
    channels_first,
    coo_products,
    gathered_weights,
    spanning_kernels,
    stepwise_products,
    unfused_attention,
    unfused_functions,
    unmerged_layers,
)
from flatout.diagnose.causes.layouts import layout_conversions
from flatout.diagnose.causes.machine import cpu_training, crowded_machine, h2d, throttled
from flatout.diagnose.causes.memory import page_faults
from flatout.diagnose.causes.needless_operators import (
    dense_gradients,
    full_sort,
    needless_logits,
    sparse_as_dense,
)
from flatout.diagnose.causes.preparation import cpu_decode, cpu_read, cpu_tokenise, cpu_transform, row_lookup
from flatout.diagnose.causes.queue import (
    large_batches,
    lock_contention,
    sample_skew,
    sampler,
    shallow_prefetch,
    slow_collate,
)
from flatout.diagnose.causes.ranks import rank_straggler
from flatout.diagnose.causes.reading import cold_cache, read_amplification, small_files, storage_bandwidth
from flatout.diagnose.causes.repeated_work import (
    activation_checkpointing,
    repeated_rows,
    repeated_work,
    reported_passes,
)
from flatout.diagnose.causes.slices import slice_gradients, slice_writes
from flatout.diagnose.causes.slow_kernels import bce_of_probabilities, dropout_masks
from flatout.diagnose.causes.step import interpreter_lock, overhead_bound, wide_dtype
from flatout.diagnose.causes.step_experiments import (
    debug_mode,
    garbage_collection,
    hooks,
    too_few_threads,
    too_many_threads,
)
from flatout.diagnose.causes.stepwise_recurrence import stepwise_recurrence
from flatout.diagnose.causes.storage import storage_latency
from flatout.diagnose.causes.unneeded_work import padding_waste, unbatched_calls
from flatout.diagnose.causes.worker_restart import worker_restart
from flatout.diagnose.causes.workers import (
    needless_workers,
    no_workers,
    too_few_workers,
    too_many_workers,
)

CAUSES: tuple[CauseSpec, ...] = (
    no_workers,
    too_few_workers,
    too_many_workers,
    needless_workers,
    cpu_decode,
    cpu_transform,
    cpu_tokenise,
    cpu_read,
    row_lookup,
    storage_latency,
    storage_bandwidth,
    small_files,
    cold_cache,
    read_amplification,
    lock_contention,
    sample_skew,
    large_batches,
    slow_collate,
    shallow_prefetch,
    worker_restart,
    epoch_start,
    sampler,
    own_input,
    main_process_work,
    writing_logs,
    checkpoint,
    validating,
    debug_mode,
    hooks,
    garbage_collection,
    too_many_threads,
    too_few_threads,
    page_faults,
    interpreter_lock,
    recompilation,
    graph_breaks,
    overhead_bound,
    wide_dtype,
    layout_conversions,
    padding_waste,
    unused_gradients,
    discarded_gradients,
    unbatched_calls,
    frozen_features,
    stepwise_recurrence,
    unmerged_layers,
    spanning_kernels,
    unfused_functions,
    coo_products,
    gathered_weights,
    stepwise_products,
    unfused_attention,
    channels_first,
    broadcast_pairs,
    repeated_rows,
    repeated_work,
    reported_passes,
    activation_checkpointing,
    full_sort,
    dropout_masks,
    bce_of_probabilities,
    needless_logits,
    sparse_as_dense,
    slice_gradients,
    slice_writes,
    dense_gradients,
    small_batch,
    device_sync,
    h2d,
    throttled,
    crowded_machine,
    rank_straggler,
    cpu_training,
    compute_bound,
)

BY_ID = {cause.id: cause for cause in CAUSES}
HEALTHY = compute_bound.id

__all__ = ["BY_ID", "CAUSES", "HEALTHY"]
