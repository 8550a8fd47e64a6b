"""The training process itself, outside forward, backward and optimizer."""

from __future__ import annotations

import math
import re
from typing import Any

from flatout.measure.input_accounts import PRODUCER
from flatout.measure.thresholds import DOMINANT_SHARE, NOISE_SHARE
from flatout.predict.context import Context
from flatout.predict.mean_costs import HANDED_OUT_S
from flatout.predict.pipeline import Change
from flatout.predict.step_changes import shorter_step
from flatout.probe.metric_files import SYNC
from flatout.remedies.proposal import DATA, IDENTICAL, OPTIMISATION, Proposal, remedy
from flatout.remedies.reporting import IN_ONE_FUNCTION, calls_every
from flatout.results import Cause
from flatout.units import duration, of_cores

# Workers for a core where they mostly wait for storage or a network.
_BLOCKED_WORKERS = 4
# Function group -> what to do about input that spends its time there, how, and the part that this is taken to save.
_CHEAPER = {
    "decode": (
        "decode at the size that is needed, or keep decoded samples",
        "image.draft('RGB', (256, 256)); smaller files; numpy.save(...) of what was decoded once",
        0.5,
    ),
    "decompress": ("store the samples uncompressed", "numpy.save(path, sample), read with mmap_mode='r'", 0.7),
    "lookup": (
        "convert the columns of the table to arrays once",
        "column = table['column'].to_numpy() before the loop; column[index] in it",
        0.95,
    ),
    "tokenise": ("tokenise the data once, before the training", "tokens = tokenizer(texts) before the loop", 0.9),
    "transform": ("transform batches with torch, on the device if there is one", "batch = augment(batch)", 0.5),
    "convert": ("convert a whole batch at once", "torch.from_numpy(numpy.stack(samples))", 0.5),
    "read": ("keep the data in memory, or copy it near the processor", "flatout stage SOURCE DEST", 0.5),
    "network": ("copy the data near the processor once", "flatout stage SOURCE DEST", 0.9),
}


# A tensor of a list of arrays is made element by element: with 32 of 4 x 84 x 84 bytes, stacking first
# took 2% of the time.
_OF_A_LIST = re.compile(r"\btorch\.tensor\(\s*\[")
_STACKED = 0.9

# Of a forward pass, what recording its graph takes.
_GRAPH, _MOST_GRAPH = 0.1, 0.3


@remedy(("own_input",), IDENTICAL, risk="medium")
def batches_ahead(context: Context, cause: Cause) -> Proposal | None:
    """Make batches in worker processes while the model computes, if no DataLoader does."""
    run, batches = context.run, context.model.batches
    if run.loading is not None or run.iterates_loader:
        return None  # a DataLoader in a DataLoader makes no batch sooner
    if run.usage.makers is not None:
        return None  # more_makers
    input_s, awaited_s = run.seconds("batch_wait") / batches, run.seconds(PRODUCER) / batches
    total_s = context.model.now.total_s - context.model.now.between_steps_s
    rest_s = max(total_s - input_s, 0.0)
    # A thread or a process that is waited for makes a batch in the time of a whole step.
    making_s = total_s if awaited_s > DOMINANT_SHARE * input_s else input_s
    computing_s = max(making_s - run.seconds("batch_wait.fetch_blocked") / batches, 0.0)
    cores = max(run.cores or 1.0, 1.0)
    threads = min(float(run.process.threads or 1), cores) if not run.uses_gpu else 1.0
    most = max(1, round(cores if computing_s > DOMINANT_SHARE * making_s else _BLOCKED_WORKERS * cores))
    workers = min(max(math.ceil(making_s / max(rest_s, 1e-9)), 1), most)
    # The slowest of the step alone, the workers, and the cores that both share sets the pace.
    after_s = max(rest_s, making_s / workers, (computing_s + rest_s * threads) / cores)
    # One more worker on cores that are full may give nothing but the overlap.
    overlapped_s = min(max(total_s - after_s, 0.0), input_s) - HANDED_OUT_S
    if overlapped_s < NOISE_SHARE * total_s:
        return None  # the cores are full already
    least_s = min(overlapped_s, max(total_s - max(rest_s, making_s), 0.0))
    line = run.lines("batch_wait", 1)
    where = f" ({line[0].file}:{line[0].line})" if line else ""
    count = f"{workers} worker" if workers == 1 else f"{workers} workers"
    return Proposal(
        title=f"make the input in {count} of a DataLoader while the model computes{where}",
        change=Change(step_removed_s=overlapped_s),
        least=Change(step_removed_s=0.5 * least_s),
        how="an IterableDataset that yields whole batches, in "
        f"DataLoader(..., batch_size=None, num_workers={workers}); or more workers of the library's",
        basis="measured time of input and of the rest of the step; overlapped as far as the usable cores go; a batch "
        "is handed over in 0.3 ms, large ones take longer",
        memory_bytes=None,
    )


@remedy(("own_input",), IDENTICAL, risk="low")
def more_makers(context: Context, cause: Cause) -> Proposal | None:
    """Raise the number of the training's own processes that make batches, as far as cores are left."""
    run, batches, made = context.run, context.model.batches, context.run.usage.makers
    awaited_s = run.seconds(PRODUCER) / batches
    if run.loading is not None or made is None or awaited_s <= DOMINANT_SHARE * run.seconds("batch_wait") / batches:
        return None
    total_s = context.model.now.total_s - context.model.now.between_steps_s
    rest_s = max(total_s - run.seconds("batch_wait") / batches, 1e-9)
    # What a batch takes of a core, whoever makes it, and the cores that the step's own computing and others leave.
    computing_s = made.cores * total_s
    outside = run.usage.crowding.outside_cores if run.usage.crowding else 0.0
    free = max((run.cores or 1.0) - (run.usage.main_cores or 0.0) - outside, made.cores)
    after_s = max(rest_s, computing_s / free)
    needed = math.ceil(made.processes * total_s / after_s * max(made.busy, 0.5))
    saved_s = min(total_s - after_s, awaited_s)
    if needed <= made.processes or saved_s < NOISE_SHARE * total_s:
        return None  # the cores are full: more processes would only share them
    return Proposal(
        title=f"raise the number of processes that make batches from {made.processes} to {needed}",
        change=Change(step_removed_s=saved_s),
        least=Change(),
        how=f"MultiThreadedAugmenter(..., num_processes={needed}); of nnU-Net: nnUNet_n_proc_DA={needed}",
        basis=f"measured CPU time of these processes, {duration(computing_s)} a batch, on the {of_cores(free)} that "
        "are left to them",
        memory_bytes=None if made.bytes_each is None else (needed - made.processes) * made.bytes_each,
    )


@remedy(("own_input",), DATA, risk="medium")
def cheaper_input(context: Context, cause: Cause) -> Proposal | None:
    """Spend less on the part of the input that takes longest."""
    run = context.run
    if run.loading is not None:
        return None
    states = (f"batch_wait.{state}" for state in ("fetch_cpu", "fetch_blocked", "producer"))
    found = [account for id in states if (account := run.ledger.account(id))]
    parts = [child for account in found for child in account.children if child.id.rpartition(".")[2] in _CHEAPER]
    top = max(parts, key=lambda part: part.seconds, default=None)
    if top is None:
        return None
    title, how, saved = _CHEAPER[top.id.rpartition(".")[2]]
    if any(_OF_A_LIST.search(line.source) for line in top.lines[:1]):
        title, saved = "stack arrays with NumPy before they become a tensor", _STACKED
    part_s = top.seconds / context.model.batches
    where = f" ({top.lines[0].file}:{top.lines[0].line})" if top.lines else ""
    return Proposal(
        title=f"{title}{where}",
        change=shorter_step(saved * part_s),
        least=Change(),
        most=shorter_step(part_s),
        how=how,
        basis=f"measured time in this kind of function; assumes that {saved:.0%} of it can be saved",
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
        change=shorter_step(saved_s),
        how="if step % 10 == 0: log(...)  # Trainer: log_every_n_steps / logging_steps",
        settings={"log_every": 10},
        recipe="logging.every_steps=500",
        basis="measured time in log and metric writes",
        memory_bytes=0,
    )


@remedy(("logging",), IDENTICAL, risk="low")
def unsynced_metrics(context: Context, cause: Cause) -> Proposal | None:
    """Write metric files without waiting for the disk."""
    account = context.run.ledger.account(f"logging.{SYNC}")
    if account is None:
        return None
    return Proposal(
        title="do not wait until the disk has each line of a metric file",
        change=shorter_step(account.seconds / context.model.batches),
        how="leave os.fsync out: if the machine itself fails, lines of the last half minute may be lost",
        settings={"metrics_unsynced": True},
        basis="measured time in os.fsync of metric files",
        memory_bytes=0,
    )


@remedy(("checkpoint",), IDENTICAL, risk="medium")
def checkpoint_less(context: Context, cause: Cause) -> Proposal | None:
    """Write checkpoints half as often, or in another thread."""
    all_s = context.run.seconds("checkpoint") / context.model.batches
    return Proposal(
        title="write checkpoints half as often, or asynchronously",
        change=Change(between_steps_removed_s=0.5 * all_s),
        least=_least_of_rare(context.run.checkpoints),
        most=Change(between_steps_removed_s=all_s),
        how="save every second time; or torch.distributed.checkpoint.async_save(state, checkpoint_id=path)",
        settings={"checkpoint_beside": True},
        recipe="checkpoints.every_steps=0",
        basis="measured time in checkpoint writes; a crash loses up to twice as much training",
        memory_bytes=0,
    )


def _least_of_rare(times: int | None) -> Change | None:
    """What is gained at least of work that was seen once: a longer run may have it no more. None: what is usual."""
    return Change() if times is not None and times <= 1 else None


# Early stopping and the choice of the best checkpoint see fewer points.
@remedy(("validation",), OPTIMISATION, risk="medium")
def validate_less(context: Context, cause: Cause) -> Proposal | None:
    """Validate half as often; every fifth time where it takes more than a third of the time."""
    all_s = context.run.seconds("validation")
    called = context.run.called("validation")[:1]
    # Most of the time is in one function of the user's or the framework's that validates.
    alone = bool(called) and called[0].seconds >= IN_ONE_FUNCTION * all_s
    every = 5 if all_s > context.run.ledger.window_s / 3 else 2
    settings: dict[str, Any] | None = calls_every(called, every) if alone else None
    if settings is None:
        settings, every = {"validation_factor": 2.0}, 2
    return Proposal(
        title="validate half as often" if every == 2 else f"validate every {every}th time",
        change=Change(between_steps_removed_s=(1 - 1 / every) * all_s / context.model.batches),
        least=_least_of_rare(context.run.validations),
        how=f"if number % {every} == 0: validate(...), where it is called now  # Lightning: "
        f"check_val_every_n_epoch={every}",
        settings=settings,
        basis="measured time in validation; less often is less work, not higher speed",
        memory_bytes=0,
    )


@remedy(("validation",), IDENTICAL, risk="low")
def validate_without_gradients(context: Context, cause: Cause) -> Proposal | None:
    """Keep nothing for a backward pass that does not come."""
    calls = context.run.validation_calls
    if calls.with_gradients < DOMINANT_SHARE:
        return None

    def saved(part: float) -> Change:
        each_s = min(calls.seconds, context.run.seconds("validation")) / context.model.batches
        return Change(between_steps_removed_s=part * calls.with_gradients * each_s)

    return Proposal(
        title="validate inside torch.no_grad()",
        change=saved(_GRAPH),
        least=Change(),
        most=saved(_MOST_GRAPH),
        how="with torch.no_grad(): around the model's calls in validation; torch.inference_mode() where no training "
        "uses what they give",
        basis="measured time of validation's forward passes; recording a graph is assumed to be a tenth of it, at most "
        "three tenths, and the memory that it holds is not counted",
        memory_bytes=0,
    )


@remedy(("epoch_start",), IDENTICAL, risk="low")
def cheaper_epoch_start(context: Context, cause: Cause) -> Proposal | None:
    """Begin epochs with less work."""
    run, loader = context.run, context.run.loading
    saved_s = cause.share * run.ledger.window_s / context.model.batches

    def without(part: float) -> Change:
        return Change(between_steps_removed_s=part * saved_s)

    title = "draw the order with one array, build lists once"
    how = "torch.randperm(n) instead of a Python list in the sampler; build file lists in Dataset.__init__"
    if loader is not None and (first := loader.workers.pass_first_fetch).slow:
        kept = "if self.episodes is None: self.episodes = self.load(), in Dataset.__iter__"
        if loader.settings.num_workers:
            title = "keep in each worker what the data set reads or builds at every pass"
            how = f"{kept}; persistent_workers=True"
        else:
            title = "keep what the data set reads or builds at every pass"
            how = f"{kept}; what is drawn at random stays there, in arrays: that changes the numbers that follow"

            def without(part: float) -> Change:
                return Change(fetch_cpu_factor=1.0 - part * first.part)

    return Proposal(
        title=title,
        change=without(0.9),
        least=without(0.5),
        most=without(1.0),
        how=how,
        basis="measured time at the beginning of epochs; assumes that a tenth of it is left",
        memory_bytes=None,
    )


_OF_SAMPLER = 0.97  # saved in the median of five repaired samplers: nothing that a step's noise shows was left


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
        change=without(_OF_SAMPLER),
        least=without(0.5),
        most=without(1.0),
        how="order = torch.randperm(n) or numpy.argsort(keys) at the start of __iter__; then only slices of it",
        basis="measured time of the sampler; assumes that array operations leave a thirtieth of it",
        memory_bytes=0,
    )
