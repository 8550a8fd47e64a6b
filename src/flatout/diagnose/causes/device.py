"""Causes in the compute of a step, and the healthy case."""

from __future__ import annotations

from flatout.diagnose.causes.fetching import hottest
from flatout.measure.accounts import COMPUTE_ACCOUNTS
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.thresholds import DOMINANT_SHARE, MATERIAL_SHARE, NOISE_SHARE
from flatout.predict.pipeline import Change
from flatout.predict.rate_model import fit
from flatout.results import Cause, Evidence, NotMeasured
from flatout.units import duration, percent

# Cost the same whatever the batch size: they work on parameters, not on samples.
FIXED_ACCOUNTS = ("optimizer", "collective")
# A quarter of the wall time: twice the batch then gives at least 1.14x, enough for a trial to prove.
_FIXED_SHARE = 0.25


def small_batch(view: MeasuredRun) -> Cause | NotMeasured | None:
    """Costs of a step that do not depend on the batch size are most of what a larger batch could save."""
    model = fit(view)
    if model is None:
        return NotMeasured("small_batch", "no training step was seen after the first one")
    if view.ledger.share("batch_wait") >= MATERIAL_SHARE:
        return None  # a wait for each sample grows with the batch: nothing to gain before the data arrive
    fixed_s = view.seconds(*FIXED_ACCOUNTS) - min(_waited_for_ranks_s(view), view.seconds("collective"))
    fixed = fixed_s / view.ledger.window_s
    if view.uses_gpu is not False:
        return _small_batch_on_gpu(view)
    share = model.recovered(Change(busy_removed_s=fixed_s / model.batches, busy_cpu_removed_s=fixed_s / model.batches))
    if fixed >= _FIXED_SHARE and share >= NOISE_SHARE:
        return Cause(
            id="small_batch",
            title="work that every step does once is a large part of it",
            share=share,
            confidence=view.confidence(0.8),
            evidence=(
                Evidence(
                    f"the optimizer and the exchange of gradients take {percent(fixed)} of the time, "
                    f"whatever the batch size; {_batch(view)}",
                    {"fixed": fixed},
                ),
            ),
        )
    if view.seconds("forward", "backward") / view.ledger.window_s < _FIXED_SHARE:
        return None
    because = "every batch had one size, so the fixed part of forward and backward cannot be told from the rest"
    return NotMeasured("small_batch", because)


def _small_batch_on_gpu(view: MeasuredRun) -> Cause | NotMeasured | None:
    busy = view.usage.device_busy_share
    if busy is None:
        return NotMeasured("small_batch", "the GPU's busy time was not measured")
    idle = 1.0 - busy - view.ledger.share("batch_wait") - _host_share(view)
    launching = view.ledger.share("forward") + view.ledger.share("backward") + view.ledger.share("optimizer")
    share = min(idle, launching)
    if share < _FIXED_SHARE:
        return None
    return Cause(
        id="small_batch",
        title="the GPU finishes its kernels faster than the host launches them",
        share=share,
        confidence=view.confidence(0.7),
        evidence=(
            Evidence(
                f"the GPU runs no kernel {percent(1 - busy)} of the time, though batches are there; {_batch(view)}",
                {"device_busy": busy, "batch_wait": view.ledger.share("batch_wait")},
            ),
        ),
    )


def device_sync(view: MeasuredRun) -> Cause | NotMeasured | None:
    """Reading values back makes the host wait for the GPU, which then waits for the host."""
    if view.uses_gpu is False:
        return NotMeasured("device_sync", "the training ran on the CPU: there is no asynchronous device to wait for")
    reads = view.ledger.share("device_sync")
    if reads < NOISE_SHARE:
        return None
    if view.usage.device_busy_share is None:
        because = "the GPU's busy time was not measured, so useful waiting in reads cannot be told from lost time"
        return NotMeasured("device_sync", because)
    # A read waits for kernels that had to run anyway. Only what the GPU idles is lost, and no more of it than
    # the wait for batches and other host work leave.
    idle = 1.0 - view.usage.device_busy_share - view.ledger.share("batch_wait") - _host_share(view)
    share = min(reads, idle)
    if share < NOISE_SHARE:
        return None
    return Cause(
        id="device_sync",
        title="reading values back from the GPU in every step",
        share=share,
        confidence=view.confidence(0.7),
        evidence=(
            Evidence(
                f"{duration(view.seconds('device_sync'))} in blocking reads, {percent(reads)} of the time; "
                f"the GPU is idle {percent(1 - view.usage.device_busy_share)} of the time",
                {"device_sync": reads, "device_busy": view.usage.device_busy_share},
            ),
            *hottest(view.lines("device_sync"), 3),
        ),
    )


def compute_bound(view: MeasuredRun) -> Cause | NotMeasured | None:
    """Healthy: the model's own computation is most of the time, and batches are there when it wants them."""
    wait = view.ledger.share("batch_wait")
    compute = view.seconds(*COMPUTE_ACCOUNTS) / view.ledger.window_s if view.ledger.window_s > 0 else 0.0
    if view.uses_gpu:
        busy = view.usage.device_busy_share
        # Without the GPU's busy time: the host meets the GPU in blocking reads, and mostly waits for computation.
        compute = compute + view.ledger.share("device_sync") if busy is None else max(compute, busy)
    if view.ranks is not None and view.ranks.straggler != view.ranks.lead:
        compute -= view.ranks.waited_share  # spent in the exchange of gradients, waiting for another rank
    # A little more waiting than the limit, beside eight times as much computation, is no fault either.
    if compute < DOMINANT_SHARE or wait >= max(MATERIAL_SHARE, compute / 8):
        return None
    return Cause(
        id="compute_bound",
        title="nothing to gain from data: the model's own computation sets the pace",
        share=min(compute, 1.0),
        confidence=view.confidence(0.9),
        evidence=(
            Evidence(
                f"forward, backward and optimizer take {percent(min(compute, 1.0))} of the time, "
                f"waiting for batches {percent(wait)}",
                {"compute": compute, "batch_wait": wait},
            ),
        ),
    )


def _waited_for_ranks_s(view: MeasuredRun) -> float:
    """Seconds in which this rank waited for another one: no cost of communication."""
    ranks = view.ranks
    return ranks.waited_share * view.ledger.window_s if ranks is not None and ranks.straggler != ranks.lead else 0.0


def _host_share(view: MeasuredRun) -> float:
    """Time in which the host visibly does something else than feed the GPU."""
    accounts = ("host_other", "logging", "checkpoint", "validation", "epoch_boundary")
    return view.seconds(*accounts) / view.ledger.window_s


def _batch(view: MeasuredRun) -> str:
    size = view.loading.batch_size if view.loading else None
    return "the batch size is not known" if size is None else f"batch size {size}"
