"""The training process itself, outside forward, backward and optimizer."""

from __future__ import annotations

from flatout.predict.context import Context
from flatout.predict.pipeline import Change
from flatout.remedies.proposal import IDENTICAL, OPTIMISATION, Proposal, remedy
from flatout.results import Cause


@remedy(("own_input",), IDENTICAL, risk="medium")
def batches_ahead(context: Context, cause: Cause) -> Proposal | None:
    """Make the next batch while the model computes, if no DataLoader does."""
    run = context.run
    if run.loading is not None:
        return None
    input_s = run.seconds("batch_wait") / context.model.batches
    # One helper that runs in parallel with the step: the longer of the two sets the pace.
    overlapped_s = min(input_s, max(context.model.now.total_s - context.model.now.between_steps_s - input_s, 0.0))
    line = run.lines("batch_wait", 1)
    where = f" ({line[0].file}:{line[0].line})" if line else ""
    return Proposal(
        title=f"make the next batch while the model computes{where}",
        change=Change(step_removed_s=overlapped_s),
        least=Change(),
        how="an IterableDataset around it in a DataLoader with num_workers, or more of the library's own workers",
        basis="measured time of input in the training process, overlapped with the rest of the step",
        memory_bytes=None,
    )


@remedy(("main_process_work",), IDENTICAL, risk="medium")
def work_to_workers(context: Context, cause: Cause) -> Proposal | None:
    """Do the training process's own work in the workers."""
    loader = context.run.loading
    if loader is None or loader.settings.num_workers == 0:
        return None
    moved_s = context.run.seconds("host_other") / context.model.batches
    line = context.run.lines("host_other", 1)
    where = f" ({line[0].file}:{line[0].line})" if line else ""
    return Proposal(
        title=f"move work of the training process into the workers{where}",
        change=Change(step_removed_s=moved_s, step_cpu_removed_s=moved_s, fetch_cpu_added_s=moved_s),
        least=Change(),
        how="do it in Dataset.__getitem__ or collate_fn where it depends only on the data",
        basis="measured time of other code in the training process, added to the fetches",
        memory_bytes=0,
    )


@remedy(("logging",), IDENTICAL, risk="low")
def log_less(context: Context, cause: Cause) -> Proposal | None:
    """Write logs and metrics every few steps."""
    saved_s = 0.9 * context.run.seconds("logging") / context.model.batches
    return Proposal(
        title="log every 10th time",
        change=Change(step_removed_s=saved_s, step_cpu_removed_s=saved_s),
        how="if step % 10 == 0: log(...)  # Trainer: log_every_n_steps / logging_steps",
        settings={"log_every": 10},
        recipe="logging.every_steps=500",
        basis="measured time in log and metric writes",
        memory_bytes=0,
    )


@remedy(("checkpoint",), IDENTICAL, risk="medium")
def checkpoint_less(context: Context, cause: Cause) -> Proposal | None:
    """Write checkpoints half as often, or in another thread."""
    all_s = context.run.seconds("checkpoint") / context.model.batches
    return Proposal(
        title="write checkpoints half as often, or asynchronously",
        change=Change(between_steps_removed_s=0.5 * all_s),
        most=Change(between_steps_removed_s=all_s),
        how="save every second time; or torch.distributed.checkpoint.async_save(state, checkpoint_id=path)",
        settings={"checkpoint_beside": True},
        recipe="checkpoints.every_steps=0",
        basis="measured time in checkpoint writes; a crash loses up to twice as much training",
        memory_bytes=0,
    )


# Early stopping and the choice of the best checkpoint see fewer points.
@remedy(("validation",), OPTIMISATION, risk="medium")
def validate_less(context: Context, cause: Cause) -> Proposal | None:
    """Validate half as often."""
    saved_s = 0.5 * context.run.seconds("validation") / context.model.batches
    return Proposal(
        title="validate half as often",
        change=Change(between_steps_removed_s=saved_s),
        how="if epoch % 2 == 0: validate(...)  # Lightning: check_val_every_n_epoch=2",
        settings={"validation_factor": 2.0},
        basis="measured time in validation; less often is less work, not higher speed",
        memory_bytes=0,
    )


@remedy(("epoch_start",), IDENTICAL, risk="low")
def cheaper_epoch_start(context: Context, cause: Cause) -> Proposal | None:
    """Begin epochs with less work."""
    saved_s = cause.share * context.run.ledger.window_s / context.model.batches
    return Proposal(
        title="draw the order with one array, build lists once",
        change=Change(between_steps_removed_s=0.8 * saved_s),
        least=Change(between_steps_removed_s=0.3 * saved_s),
        most=Change(between_steps_removed_s=saved_s),
        how="torch.randperm(n) instead of a Python list in the sampler; build file lists in Dataset.__init__",
        basis="measured time at the beginning of epochs",
        memory_bytes=0,
    )


@remedy(("sampler",), IDENTICAL, risk="low")
def indices_at_once(context: Context, cause: Cause) -> Proposal | None:
    """Choose the indices of all batches of an epoch at once."""
    loader = context.run.loading
    if loader is None:
        return None
    each_s = loader.delivery.indices_s / context.model.batches
    ahead_s = loader.delivery.indices_ahead_s / context.model.batches

    def without(part: float) -> Change:
        saved_s = part * each_s
        return Change(step_removed_s=saved_s, step_cpu_removed_s=saved_s, between_steps_removed_s=part * ahead_s)

    caller = context.run.lines("batch_wait.sampling", 1)
    where = f" ({caller[0].file}:{caller[0].line})" if caller else ""
    return Proposal(
        title=f"choose the indices of all batches of an epoch at once, as arrays{where}",
        change=without(0.9),
        least=without(0.3),
        most=without(1.0),
        how="order = torch.randperm(n) or numpy.argsort(keys) at the start of __iter__; then only slices of it",
        basis="measured time of the sampler; assumes that array operations leave a tenth of it",
        memory_bytes=0,
    )
