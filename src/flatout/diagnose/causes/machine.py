"""Causes in the machine: limits on cores and clocks, an idle GPU, copies to it."""

from __future__ import annotations

from flatout.diagnose.cause import Found, Lacks, cause
from flatout.diagnose.evidence import hottest, split
from flatout.diagnose.sentences import cores
from flatout.measure.account_ids import COMPUTE_ACCOUNTS
from flatout.measure.crowding import MATERIAL_CORES
from flatout.measure.thresholds import DOMINANT_SHARE, NOISE_SHARE
from flatout.predict.context import Context
from flatout.predict.crowded_threads import FewerThreads, fewer_threads, shorter_by
from flatout.results import Cause, Evidence
from flatout.units import counted, duration, percent

_NEARLY = 0.7  # of their share
_IDLE_GPU = 0.05  # a GPU that runs kernels for less than this share of the time is unused


@cause(
    "training",
    hides=("too_many_workers",),
)
def throttled(context: Context) -> Found | Lacks | None:
    """A quota takes the cores away, or the GPU lowers its clocks because of heat or power supply."""
    run = context.run
    usage = run.usage
    cpu, gpu = usage.throttled_share or 0.0, usage.gpu_throttled_share or 0.0
    share = max(cpu, gpu)
    if share < NOISE_SHARE:
        return None
    if gpu > cpu:
        text = (
            f"the GPU lowers its clocks in {percent(gpu)} of the samples: {', '.join(usage.gpu_throttle_reasons or ())}"
        )
        title = "the GPU lowers its clocks"
    else:
        text = f"the CPU quota stops the processes {percent(cpu)} of the time of its cores"
        title = "the CPU quota stops the processes"
    cores = f"{run.cores:.3g} cores are usable" if run.cores is not None else "usable cores: not measured"
    return Found(
        title=title,
        share=share,
        confidence=0.8,
        evidence=(Evidence(text, {"cpu": cpu, "gpu": gpu}), Evidence(cores)),
    )


def _is_crowded(context: Context, found: Cause) -> str:
    crowding = context.run.usage.crowding
    others = f"use {crowding.outside_cores:.2g} of {cores(context.run)}" if crowding else "use the cores"
    whose = _whose(context).capitalize()
    if "now_s" in found.evidence[0].values:
        return f"{whose} {others}: waits of its threads take {percent(found.share)} of the time."
    return f"{whose} {others}: it waits {percent(found.share)} of the time for one."


def _whose(context: Context) -> str:
    crowding = context.run.usage.crowding
    mostly_own = crowding is not None and crowding.started_cores >= DOMINANT_SHARE * crowding.outside_cores
    return "other processes that this training started" if mostly_own else "processes outside this training"


# Whoever has no core for a while leaves gaps between operators, whatever their number.
@cause("training", hides=("overhead_bound", "small_batch"), hides_from=_NEARLY, sentence=_is_crowded)
def crowded_machine(context: Context) -> Found | Lacks | None:
    """Other processes on the machine use the cores that the training is ready to run on."""
    run, crowding = context.run, context.run.usage.crowding
    if crowding is None:
        return Lacks("the use of the cores, or the training's waits for one, were not measured")
    main = crowding.wait_share
    if run.uses_gpu is not False and run.usage.device_busy_share is not None:
        main = min(main, 1.0 - run.usage.device_busy_share)  # a delay that the GPU does not notice costs nothing
    # Where the training waits for workers, their waits for a core are its own.
    queued = split(run.loading).runqueue if run.loading is not None and run.loading.settings.num_workers else None
    workers = run.ledger.share("batch_wait") * (queued or 0.0) * crowding.part
    fewer = fewer_threads(context)
    by_threads = context.model.recovered(shorter_by(context, fewer.part)) if fewer else 0.0
    share = max(min(main + workers, 1.0), by_threads)
    if share < NOISE_SHARE or crowding.outside_cores < MATERIAL_CORES:
        return None
    return Found(
        title=f"{_whose(context)} use the cores that it waits for",
        share=share,
        confidence=0.8,
        evidence=(
            *([_of_threads(context, fewer)] if fewer and by_threads >= share else ()),
            Evidence(
                f"{_whose(context)} use {crowding.outside_cores:.2g} of {cores(run)}; "
                f"its own thread waits {percent(main)} of the time for a core because of them, "
                f"the batches that it waits for another {percent(workers)}",
                {"outside_cores": crowding.outside_cores, "core_wait": main, "batch_wait": workers},
            ),
            *(Evidence(text) for text in crowding.processes),
        ),
    )


def _of_threads(context: Context, fewer: FewerThreads) -> Evidence:
    took = "took, in steps after the window," if fewer.tried is not None else "would take, by the traced operators,"
    return Evidence(
        f"an operator ends with the last of its threads: with {counted(fewer.count, 'thread')} a step {took} "
        f"{duration(fewer.step_s)}, and {duration(context.model.now.step_s)} with {context.run.process.threads} in the "
        "window",
        {"threads": fewer.count, "step_s": fewer.step_s, "now_s": context.model.now.step_s},
    )


@cause("training")
def cpu_training(context: Context) -> Found | Lacks | None:
    """The training computes on the CPU of a machine that has a GPU."""
    run = context.run
    gpus = run.machine.get("gpus")
    if not isinstance(gpus, list | tuple) or not gpus or run.uses_gpu:
        return None
    busy = run.usage.device_busy_share
    if run.uses_gpu is None and (busy is None or busy >= _IDLE_GPU):
        return None
    share = min(run.seconds(*COMPUTE_ACCOUNTS) / run.ledger.window_s, 1.0) if run.ledger.window_s > 0 else 0.0
    if share < DOMINANT_SHARE:
        return None
    name = gpus[0].get("name") if isinstance(gpus[0], dict) else None
    if run.process.cuda is None:
        why = f"torch {run.process.torch or ''} is built without CUDA".replace("  ", " ")
    elif run.process.device_count == 0:
        why = "torch sees no CUDA device: CUDA_VISIBLE_DEVICES or the driver hides it"
    else:
        why = "torch sees the GPU, and the model was not moved to it"
    return Found(
        title="the training runs on the CPU while a GPU stands idle",
        share=share,
        confidence=0.9,
        evidence=(
            Evidence(f"{name or 'a GPU'} is there; {why}", {"gpus": len(gpus)}),
            Evidence(
                f"forward, backward and optimizer take {percent(share)} of the time on the CPU", {"compute": share}
            ),
        ),
    )


@cause("training")
def h2d(context: Context) -> Found | Lacks | None:
    """Copies of batches to the GPU delay the training: from memory that is not pinned, or waited for."""
    run = context.run
    if run.uses_gpu is False:
        return None
    share = run.ledger.share("h2d")
    if share < NOISE_SHARE:
        return None
    pinned = run.loading.settings.pin_memory if run.loading else None
    how = {True: "the loader pins its memory", False: "the loader does not pin its memory", None: "there is no loader"}
    each = run.seconds("h2d") / max(run.ledger.steps.count, 1)
    return Found(
        title="copying batches to the GPU holds up the steps",
        share=share,
        confidence=0.8 if pinned is False else 0.6,
        evidence=(
            Evidence(f"{duration(each)} a step, {percent(share)} of the time; {how[pinned]}", {"h2d_s": each}),
            *hottest(run.lines("h2d"), 3),
        ),
    )
