"""Build the view of a recorded run."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from flatout.measure.account_details import outermost
from flatout.measure.account_ids import COMPUTE_ACCOUNTS
from flatout.measure.accounts import charge
from flatout.measure.called_functions import METRICS, called_functions, hook_functions, metric_functions
from flatout.measure.compiling import measure_compiling
from flatout.measure.debug_code import find_debug_code
from flatout.measure.experiments import read_experiments
from flatout.measure.frozen_modules import read_frozen_modules
from flatout.measure.gradients import read_discarded_gradients, read_unused_gradients
from flatout.measure.input_functions import own_input_functions
from flatout.measure.last_steps import read_last_steps, with_doubled_input
from flatout.measure.layer_forms import (
    read_broadcast_pairs,
    read_coordinate_products,
    read_gathered_weights,
    read_model_layouts,
    read_spanning_kernels,
    read_stepwise_products,
    read_unfused_attention,
    read_unfused_functions,
    read_unmerged_layers,
)
from flatout.measure.ledger import build_ledger
from flatout.measure.loader import build_loading
from flatout.measure.loader_processes import loader_processes
from flatout.measure.lock_waits import measure_lock_waits
from flatout.measure.makers import Makers, find_makers
from flatout.measure.measured_run import MeasuredRun, Process
from flatout.measure.metrics import read_metrics
from flatout.measure.padding import read_padding
from flatout.measure.ranks import build_ranks
from flatout.measure.read_values import read_read_values
from flatout.measure.repeated_rows import read_repeated_rows
from flatout.measure.repeated_weights import read_repeated_weight
from flatout.measure.repeated_work import read_repeated_work
from flatout.measure.slice_lines import read_slice_lines
from flatout.measure.stepwise_layers import read_stepwise_layers
from flatout.measure.timeline import Pieces, intervals
from flatout.measure.traced_operators import measure_operators
from flatout.measure.training import Training, find_training
from flatout.measure.unfinished_validation import with_unfinished_validation
from flatout.measure.usage import summarize
from flatout.measure.usual_steps import of_usual_steps
from flatout.measure.validation import validation_calls, validation_regions
from flatout.measure.validation_workers import validation_workers
from flatout.probe import events as kinds
from flatout.record import ProcessRecord, Run
from flatout.results import Ledger

_FINISHED = "the training finished by itself: only a bound before its end leaves steps to measure"


def build_view(run: Run) -> MeasuredRun | None:
    """The run as causes, predictions and remedies see it; None if it has no complete training step."""
    training = find_training(run)
    if training is None:
        return None
    training = with_unfinished_validation(run, training)
    side = loader_processes(run, training)
    charged = charge(training, side.teams if side else ())
    ledger = build_ledger(run, training, side, charged)
    training = replace(training, process=of_usual_steps(training.process))
    loading = build_loading(run, training, side)
    workers = tuple(m for team in side.teams for m in team.members if m is not None) if side else ()
    spans = bool(len(training.process.of_kinds(kinds.DEVICE_SPAN)))
    process = _process(training.process, workers)
    gpu = _gpu_index(run, training, process)
    process = replace(
        process,
        capability=_capability(run, gpu),
        gpu=_of_gpu(run, gpu, "name"),
        mig=_of_gpu(run, gpu, "mig"),
        optimizer=_optimizer(training),
    )
    usage = summarize(
        run.system(),
        training.window_begin_ns,
        training.window_end_ns,
        training.process.pid,
        sorted({worker.pid for worker in workers}),
        gpu,
        (run.machine.get("cores") or {}).get("usable"),
        alone=loading is not None and training.processes == 1,
    )
    usage = replace(usage, makers=_makers(run, training, {worker.pid for worker in workers}))
    if spans and ledger.window_s > 0:
        # The ledger charges device time to its phase: more exact than the driver's samples.
        busy_s = sum(account.seconds for account in ledger.accounts if account.id in (*COMPUTE_ACCOUNTS, "h2d"))
        usage = replace(usage, device_busy_share=busy_s / ledger.window_s)
    usage = replace(usage, gpu_memory_total_bytes=_gpu_memory(run, gpu))
    regions = validation_regions(training)
    finished = run.window_end_ns is None and run.ending.stop == "finished"
    nothing_after = _FINISHED if finished else ""
    experiments = read_experiments(training.process, nothing_after)
    cores = (run.machine.get("cores") or {}).get("usable")
    return MeasuredRun(
        ledger=ledger,
        loading=loading,
        cores=float(cores) if cores is not None else None,
        process=process,
        usage=usage,
        uses_gpu=_uses_gpu(process, ledger, spans),
        device_timed=spans,
        machine=run.machine,
        validations=_begun(training, regions.start),
        validation_calls=validation_calls(training, regions),
        validation_unfinished=training.unfinished_validation_ns is not None,
        validation_workers=validation_workers(training),
        checkpoints=_begun(training, outermost(training.kind(kinds.CHECKPOINT))["start"]),
        metrics=read_metrics(training.process),
        ranks=build_ranks(run) if training.processes > 1 else None,
        lock=measure_lock_waits(training, charged, spans),
        operators=measure_operators(
            run, training, ledger, usage.main_runqueue_share or 0.0, usage.main_faults, charged
        ),
        experiments=experiments,
        debug_code=find_debug_code(charged.samples, training.window_begin_ns, training.window_end_ns),
        compiling=measure_compiling(run, training),
        padding=read_padding(training.process),
        repeated_weight=read_repeated_weight(training.process),
        repeated_work=read_repeated_work(training.process),
        repeated_rows=read_repeated_rows(training.process),
        taking_lines=read_slice_lines(training.process, "slice_takes"),
        writing_lines=read_slice_lines(training.process, "slice_writes"),
        stepwise_layers=read_stepwise_layers(training.process),
        unmerged_layers=read_unmerged_layers(training.process),
        spanning_kernels=read_spanning_kernels(training.process),
        unfused_functions=read_unfused_functions(training.process),
        coordinate_products=read_coordinate_products(training.process),
        gathered_weights=read_gathered_weights(training.process),
        read_values=read_read_values(training.process),
        model_layouts=read_model_layouts(training.process),
        stepwise_products=read_stepwise_products(training.process),
        unfused_attention=read_unfused_attention(training.process),
        broadcast_pairs=read_broadcast_pairs(training.process),
        frozen_modules=read_frozen_modules(training.process),
        discarded_gradients=read_discarded_gradients(training.process, experiments),
        unused_gradients=read_unused_gradients(training.process, experiments),
        last_steps=with_doubled_input(read_last_steps(training.process, nothing_after), training.process, ledger),
        called_functions={
            **called_functions(charged, ledger, training.window_begin_ns, training.window_end_ns),
            METRICS: metric_functions(charged, ledger, training.window_begin_ns, training.window_end_ns),
            "hooks": hook_functions(charged.samples, experiments.hooks),
        },
        input_functions=() if loading is not None else own_input_functions(training, charged),
        iterates_loader=_iterates_loader(training, regions),
        by_recipe=_by_recipe(run.command),
    )


def _iterates_loader(training: Training, validation: Pieces) -> bool:
    """True if the training process takes batches of a DataLoader, in whatever thread, outside validation."""
    waits = training.process.of_kinds(kinds.BATCH_WAIT)
    return bool(np.any(intervals(validation.start, validation.end).at(waits["start"]) < 0))


def _optimizer(training: Training) -> str | None:
    """The class of the first optimizer that stepped; gradient clipping, recorded alike, is a function."""
    names = (training.process.names.text(int(id)) for id in np.unique(training.kind(kinds.OPTIMIZER)["arg"]))
    return next((name for name in names if name[:1].isupper()), None)


def _by_recipe(command: Sequence[str]) -> bool:
    """True if the command is ``flatout train``, as a program or as a module."""
    pairs = itertools.pairwise(command)
    return any(word == "train" and Path(before).name in ("flatout", "__main__.py") for before, word in pairs)


def _process(lead: ProcessRecord, workers: tuple[ProcessRecord, ...]) -> Process:
    threads = [worker.info["threads"] for worker in workers if isinstance(worker.info.get("threads"), int)]
    settings = (
        "autocast",
        "param_dtype",
        "tf32",
        "convolutions",
        "channels_last",
        "cudnn_benchmark",
        "switch_interval_us",
        "compiled",
        "outputs",
        "param_bytes",
        "memory_allocated",
        "memory_reserved",
    )
    return Process(
        **{name: lead.info.get(name) for name in settings},
        torch=lead.info.get("torch"),
        cuda=lead.info.get("cuda"),
        device_count=int(lead.info.get("device_count") or 0),
        threads=lead.info.get("threads"),
        worker_threads=max(threads, default=None),
        untimed=dict(lead.info.get("not_patched") or {}),
    )


def _uses_gpu(process: Process, ledger: Ledger, spans: bool) -> bool | None:
    """True if the training ran on a GPU; None if unknown, since the presence of one proves nothing."""
    if process.device_count == 0:
        return False
    if spans or ledger.share("h2d") > 0:
        return True
    return None


def _gpu_index(run: Run, training: Training, process: Process) -> int | None:
    """The GPU to look up in the samples: by its own name, else the only one of the machine, else the local rank's."""
    if process.device_count == 0:
        return None
    gpus = run.machine.get("gpus") or ()
    uuid = training.process.info.get("device_uuid")
    named = [gpu["index"] for gpu in gpus if uuid is not None and gpu.get("uuid") == uuid]
    if named:
        return int(named[0])
    if len(gpus) == 1:
        return 0
    rank = training.process.info.get("local_rank")
    return int(rank) if rank is not None else None


def _makers(run: Run, training: Training, workers: set[int]) -> Makers | None:
    own = training.process.pid
    children = {process.pid for process in run.processes if process.info.get("ppid") == own} - workers
    return find_makers(run.system(), training.window_begin_ns, training.window_end_ns, children) if children else None


def _gpu_memory(run: Run, index: int | None) -> int | None:
    """Memory of one GPU of the machine, bytes."""
    size = _of_gpu(run, index, "memory_bytes")
    return int(size) if size else None


def _capability(run: Run, index: int | None) -> float | None:
    """Compute capability of one GPU of the machine, as 8.6."""
    found = _of_gpu(run, index, "compute_capability")
    return float(found) if found and re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3})?", found) else None


def _of_gpu(run: Run, index: int | None, field: str) -> Any:
    found = (gpu.get(field) for gpu in run.machine.get("gpus") or () if gpu.get("index") == index)
    return next(found, None) if index is not None else None


def _begun(training: Training, starts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    """The number of these times that lie in the window."""
    inside = (starts >= training.window_begin_ns) & (starts < training.window_end_ns)
    return int(np.count_nonzero(inside))
