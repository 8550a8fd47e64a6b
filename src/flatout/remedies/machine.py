"""The machine: devices, cores, copies and ranks."""

from __future__ import annotations

from flatout.predict.context import Context
from flatout.predict.pipeline import Change
from flatout.predict.step_changes import shorter_step
from flatout.remedies.proposal import IDENTICAL, NUMERICS, Proposal, remedy
from flatout.results import Cause, Gain


@remedy(("h2d",), IDENTICAL, risk="low")
def pin_memory(context: Context, cause: Cause) -> Proposal | None:
    """Copy to the GPU from pinned memory, without waiting."""
    each_s = context.run.seconds("h2d") / context.model.batches
    loader = context.run.loading
    if loader is not None and loader.settings.pin_memory:
        title, how = "copy without waiting", "batch.to(device, non_blocking=True)"
    else:
        title = "pin the loader's memory and copy without waiting"
        how = "DataLoader(..., pin_memory=True); batch.to(device, non_blocking=True)"
    return Proposal(
        title=title,
        change=Change(step_removed_s=0.7 * each_s),
        least=Change(step_removed_s=0.2 * each_s),
        most=Change(step_removed_s=each_s),
        how=how,
        settings={"pin_memory": True, "non_blocking": True},
        basis="measured time of copies; those that the GPU's work hides cost nothing before, either",
        memory_bytes=2 * loader.delivery.batch_bytes if loader is not None and loader.delivery.batch_bytes else None,
    )


@remedy(("cpu_training",), NUMERICS, risk="medium")
def train_on_gpu(context: Context, cause: Cause) -> Proposal | None:
    """Train on the GPU."""
    compute_s = cause.share * context.model.now.total_s
    return Proposal(
        title="move the model and the batches to the GPU",
        # The least speedup of a server's GPU over its CPUs for dense models; small ones gain less.
        change=shorter_step(0.8 * compute_s),
        least=Change(step_removed_s=0.3 * compute_s),
        most=shorter_step(0.98 * compute_s),
        how="model.to('cuda'); batch.to('cuda', non_blocking=True); a torch built with CUDA",
        basis="share of computation only: the GPU's speed on this model was not measured",
        memory_bytes=0,
    )


@remedy(("throttled",), IDENTICAL, risk="low")
def more_quota(context: Context, cause: Cause) -> Proposal | None:
    """Use fewer cores than the quota gives, or raise the quota."""
    lost_s = cause.share * context.model.now.total_s
    return Proposal(
        title="ask for more cores or better cooling, or start fewer threads",
        change=Change(step_removed_s=0.5 * lost_s),
        least=Change(),
        most=Change(step_removed_s=lost_s),
        how="a larger CPU limit of the container; torch.set_num_threads(cores of the quota); fewer workers",
        basis="measured time that was withheld; what the training would have done in it is not known",
        memory_bytes=0,
    )


@remedy(("crowded_machine",), IDENTICAL, risk="low")
def cores_of_its_own(context: Context, cause: Cause) -> Proposal | None:
    """Keep other processes off the cores that the training needs."""
    crowding = context.run.usage.crowding
    if crowding is None:
        return None
    lost_s = cause.share * context.model.now.total_s
    return Proposal(
        title="give the training cores that other processes leave alone",
        change=Change(step_removed_s=0.9 * lost_s),
        least=Change(),
        most=Change(step_removed_s=lost_s),
        # Waits of the workers are part of it, and the model holds the other processes for given.
        gain=Gain(1.0 / (1.0 - min(0.9 * cause.share, 0.9)), 1.0, 1.0 / (1.0 - min(cause.share, 0.95))),
        how="end or move the other processes, or keep them off some cores: taskset -cp 0 PID, a cpuset, nice -n 19",
        basis="measured waits for a core while processes outside the training use the cores",
        assumes=False,
        memory_bytes=0,
    )


@remedy(("rank_straggler",), IDENTICAL, risk="medium")
def even_ranks(context: Context, cause: Cause) -> Proposal | None:
    """Make the slowest rank as fast as the others."""
    ranks = context.run.ranks
    if ranks is None:
        return None
    lost_s = cause.share * context.model.now.total_s
    return Proposal(
        title=f"make rank {ranks.straggler} as fast as the others",
        change=Change(step_removed_s=0.9 * lost_s),
        least=Change(step_removed_s=0.3 * lost_s),
        most=Change(step_removed_s=lost_s),
        how=f"profile rank {ranks.straggler} alone: it {ranks.part} longer; the same data, workers and cores for all",
        basis="measured waiting of the other ranks for this one",
        memory_bytes=0,
    )
