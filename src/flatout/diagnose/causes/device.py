"""Causes in the compute of a step, and the healthy case."""

from __future__ import annotations

from flatout.diagnose.cause import NO_STEP, Found, Lacks, cause
from flatout.diagnose.causes.step_experiments import tried_in_vain
from flatout.diagnose.evidence import hottest
from flatout.diagnose.reads import beside_reads, host_share, lost_in_reads
from flatout.diagnose.sentences import where
from flatout.diagnose.step_ceiling import ceiling_evidence, how_near
from flatout.measure.account_ids import COMPUTE_ACCOUNTS
from flatout.measure.last_steps import Doubled
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.thresholds import DOMINANT_SHARE, LEADING_SHARE, MATERIAL_SHARE, NOISE_SHARE
from flatout.predict.context import Context
from flatout.predict.measured import fixed_part
from flatout.predict.pipeline import Change
from flatout.predict.step_changes import shorter_step
from flatout.results import Cause, Evidence
from flatout.units import counted, duration, percent

# Run once a step, whatever the batch size, and are causes of their own.
_HOST_ACCOUNTS = ("host_other", "logging", "device_sync")
# Cost the same whatever the batch size: they work on parameters, not on samples.
FIXED_ACCOUNTS = ("optimizer", "collective")
# Twice the batch then gives at least 1.2x. In 32 looks at trainings on one machine, whatever lay below was no small
# batch: something else was wrong, or nothing. Where the batch was too small, it was 47% and more.
_FIXED_SHARE = 0.35
_LARGE_PART = 0.25  # of the time: in the optimizer, or of a device without a kernel
# So few samples make operators small; with more, many operators are the more likely reason for their overhead.
FEW_SAMPLES = 8


def _pays_fixed_costs(context: Context, found: Cause) -> str:
    run = context.run
    optimizer = run.ledger.share("optimizer")
    alone = ""
    if optimizer >= _LARGE_PART:
        alone = f", the optimizer's step alone {percent(optimizer)}{where(run, 'optimizer')}"
    return f"Work that costs the same for a larger batch takes {percent(found.share)} of the time{alone}."


@cause("training", sentence=_pays_fixed_costs)
def small_batch(context: Context) -> Found | Lacks | None:
    """Each step has a large cost that does not depend on the batch size."""
    run = context.run
    model = context.fitted
    if model is None:
        return Lacks(NO_STEP)
    # A wait for each sample grows with the batch: nothing to gain before the data arrive. Handing it over does not.
    if run.ledger.share("batch_wait") - run.ledger.share("batch_wait.ipc") >= MATERIAL_SHARE:
        return None
    if run.last_steps.doubled is not None:
        return _measured_small_batch(context, run.last_steps.doubled)
    fixed_s = run.seconds(*FIXED_ACCOUNTS) - min(_waited_for_ranks_s(run), run.seconds("collective"))
    if run.uses_gpu is not False:
        return _small_batch_on_gpu(run)
    overhead = _overhead_of_few_samples(run)
    fixed_s += overhead * run.seconds("forward", "loss", "backward")
    fixed = fixed_s / run.ledger.window_s
    share = model.recovered(shorter_step(fixed_s / model.batches))
    if fixed >= _FIXED_SHARE and share >= NOISE_SHARE:
        samples = {"samples": _samples(run)} if overhead else {}
        return Found(
            title="a large part of each step costs the same with a larger batch",
            share=share,
            confidence=0.8,
            evidence=(
                Evidence(
                    f"{_fixed_work(run, overhead)}: {percent(fixed)} of the time, whatever the batch size; "
                    f"{_batch(run)}",
                    {"fixed": fixed, **samples},
                ),
            ),
        )
    if run.seconds("forward", "backward") / run.ledger.window_s < _LARGE_PART or not isinstance(run.operators, str):
        return None
    because = "every batch had one size, so the fixed part of forward and backward cannot be separated from the rest"
    return Lacks(f"{because} (no batch was doubled: {run.last_steps.not_doubled})")


def _measured_small_batch(context: Context, doubled: Doubled) -> Found | None:
    """The part of a step that twice the samples did not lengthen, less what other causes name.

    The user's own code, hooks and the collector run once a step too; so does the overhead of many operators, which a
    batch of more than a few samples does not excuse. A wait for other ranks goes with what makes them slow.
    """
    run, model = context.run, context.model
    step_s = run.last_steps.replayed.step_s if run.last_steps.replayed is not None else doubled.single_s
    others_s = (run.seconds(*_HOST_ACCOUNTS) + _waited_for_ranks_s(run)) / model.batches
    others_s += ((run.experiments.hooks_share or 0.0) + (run.experiments.collector_share or 0.0)) * step_s
    if not isinstance(run.operators, str) and doubled.samples > FEW_SAMPLES:
        others_s += run.operators.overhead_s
    # Passes apart from the steps: kernels that use a device better with twice the samples look fixed, too.
    certain = doubled.passes and doubled.samples > FEW_SAMPLES
    parts = (doubled.fixed_low, doubled.fixed_low if certain else doubled.fixed)
    parts_s = (min(part * step_s, model.now.step_s) for part in parts)
    low_s, fixed_s = (max(part_s - others_s, 0.0) for part_s in parts_s)
    fixed = fixed_s / model.now.total_s
    share = model.recovered(shorter_step(fixed_s))
    if fixed < _FIXED_SHARE or share < NOISE_SHARE or low_s < NOISE_SHARE * model.now.total_s:
        return None
    values: dict[str, float | int | str] = {
        "fixed": fixed,
        "samples": doubled.samples,
        "single_s": doubled.single_s,
        "doubled_s": doubled.doubled_s,
        "fixed_low": doubled.fixed_low,
        "fixed_high": doubled.fixed_high,
    }
    return Found(
        title="a large part of each step costs the same with a larger batch",
        share=share,
        confidence=0.9,
        evidence=(Evidence(f"{fixed_part(context)}; {_batch(run)}", values),),
    )


def _small_batch_on_gpu(run: MeasuredRun) -> Found | Lacks | None:
    busy = run.usage.device_busy_share
    if busy is None:
        return Lacks("the GPU's busy time was not measured")
    idle = 1.0 - busy - run.ledger.share("batch_wait") - host_share(run)
    launching = run.ledger.share("forward") + run.ledger.share("backward") + run.ledger.share("optimizer")
    share = min(idle, launching)
    if share < _LARGE_PART:
        return None
    return Found(
        title="the GPU finishes its kernels faster than the host launches them",
        share=share,
        confidence=0.7,
        evidence=(
            Evidence(
                f"the GPU runs no kernel {percent(1 - busy)} of the time, though batches are there; {_batch(run)}",
                {"device_busy": busy, "batch_wait": run.ledger.share("batch_wait")},
            ),
        ),
    )


def _idles_at_reads(context: Context, found: Cause) -> str:
    line = where(context.run, "device_sync")
    return f"The GPU idles {percent(found.share)} of the time while the training reads values back from it{line}."


@cause("training", sentence=_idles_at_reads)
def device_sync(context: Context) -> Found | Lacks | None:
    """Reading values back makes the host wait for the GPU, which then waits for the host."""
    run = context.run
    if run.uses_gpu is False:
        return Lacks("the training ran on the CPU: there is no asynchronous device to wait for")
    reads = run.ledger.share("device_sync")
    if reads < NOISE_SHARE:
        return None
    if run.usage.device_busy_share is None:
        because = "the GPU's busy time was not measured, so useful waiting in reads cannot be separated from lost time"
        return Lacks(because)
    lost = lost_in_reads(run)
    if not lost:
        return None
    # What such a line computes beside the read, it computes while the GPU has nothing to do.
    share = lost + sum(line.seconds for line in beside_reads(run)) / run.ledger.window_s
    return Found(
        title="reading values back from the GPU in every step",
        share=share,
        confidence=0.7,
        evidence=(
            Evidence(
                f"{duration(run.seconds('device_sync'))} in blocking reads, {percent(reads)} of the time; "
                f"the GPU is idle {percent(1 - run.usage.device_busy_share)} of the time",
                {"device_sync": reads, "device_busy": run.usage.device_busy_share},
            ),
            *hottest(run.lines("device_sync"), 3),
        ),
    )


def _is_healthy(context: Context, found: Cause) -> str:
    run = context.run
    tried = [str(one.values["tried"]) for one in tried_in_vain(run)]
    outcome = f"; it is no faster {', '.join(tried)}" if tried else ""
    return (
        f"The model's own computation takes {percent(found.share)} of the time, "
        f"waiting for batches {percent(run.ledger.share('batch_wait'))}. {how_near(run)}{outcome}."
    )


@cause("healthy", sentence=_is_healthy)
def compute_bound(context: Context) -> Found | Lacks | None:
    """Healthy: the model's own computation takes most of the time, and batches are ready when it needs them."""
    run = context.run
    wait = run.ledger.share("batch_wait")
    compute = run.seconds(*COMPUTE_ACCOUNTS) / run.ledger.window_s if run.ledger.window_s > 0 else 0.0
    if run.uses_gpu:
        busy = run.usage.device_busy_share
        # Without the GPU's busy time: the host meets the GPU in blocking reads, and mostly waits for computation.
        compute = compute + run.ledger.share("device_sync") if busy is None else max(compute, busy)
    if run.ranks is not None and run.ranks.straggler != run.ranks.lead:
        compute -= run.ranks.waited_share  # spent in the exchange of gradients, waiting for another rank
    # Of the wait, what steps keep whose batches were already there is no fault of the input.
    lost = wait if context.fitted is None else min(wait, 1.0 - 1.0 / context.fitted.most(Change()))
    # Slightly more waiting than the limit is no fault either if there is eight times as much computation.
    if compute < DOMINANT_SHARE or lost >= max(LEADING_SHARE, compute / 8):
        return None
    return Found(
        title="the model's own computation sets the pace, and batches are ready in time",
        share=min(compute, 1.0),
        confidence=0.9,
        evidence=(
            Evidence(
                f"forward, backward and optimizer take {percent(min(compute, 1.0))} of the time, "
                f"waiting for batches {percent(wait)}",
                {"compute": compute, "batch_wait": wait},
            ),
            *tried_in_vain(run),
            *ceiling_evidence(run),
        ),
    )


def _waited_for_ranks_s(run: MeasuredRun) -> float:
    """Seconds in which this rank waited for another one: no cost of communication."""
    ranks = run.ranks
    return ranks.waited_share * run.ledger.window_s if ranks is not None and ranks.straggler != ranks.lead else 0.0


def _overhead_of_few_samples(run: MeasuredRun) -> float:
    """The part of the computation around operators, which costs the same for more samples; 0 in a large batch."""
    operators = run.operators
    if isinstance(operators, str) or not 0 < _samples(run) <= FEW_SAMPLES:
        return 0.0
    return min(operators.overhead_s / operators.computed_s, 1.0)


def _fixed_work(run: MeasuredRun, overhead: float) -> str:
    """The parts of a step that cost the same for more samples, in words."""
    parts = {
        "the optimizer": run.seconds("optimizer"),
        "the exchange of gradients": run.seconds("collective"),
        "the launching of operators": overhead,
    }
    return " and ".join(name for name, amount in parts.items() if amount > 0)


def _samples(run: MeasuredRun) -> float:
    """Mean of a step's; 0: not measured."""
    return run.ledger.steps.samples / max(run.ledger.steps.count, 1)


def _batch(run: MeasuredRun) -> str:
    size = run.loading.settings.batch_size if run.loading else None
    if size is None and run.last_steps.doubled is not None:
        size = round(run.last_steps.doubled.samples)
    if size is None and _samples(run):
        return f"about {counted(max(round(_samples(run)), 1), 'sample')} a step"
    return "the batch size is not known" if size is None else f"batch size {size}"
