"""The rate that each stage could sustain alone, from the measured costs of a batch."""

from __future__ import annotations

from dataclasses import dataclass

from flatout.diagnose.view import View
from flatout.predict.rate_model import RateModel, fit

# Accounts in which the training step itself is computed.
COMPUTE_ACCOUNTS = ("forward", "loss", "backward", "optimizer", "collective")


@dataclass(frozen=True)
class Ceiling:
    """``rate_sps`` is None when it was not measured: ``because`` says why."""

    stage: str  # storage | preparation | transfer | device
    rate_sps: float | None
    because: str


@dataclass(frozen=True)
class Ceilings:
    """Rates in samples/s; ``limit`` is the stage with the lowest known ceiling."""

    now_sps: float
    stages: tuple[Ceiling, ...]
    limit: str | None


def ceilings(view: View) -> Ceilings | None:
    """Ceilings with the settings of this run; None when the window holds no step."""
    model = fit(view)
    if model is None:
        return None
    stages = (_storage(view, model), _preparation(view, model), _transfer(view, model), _device(view, model))
    known = {stage.stage: stage.rate_sps for stage in stages if stage.rate_sps is not None}
    limit = min(known, key=lambda stage: known[stage]) if known else None
    return Ceilings(now_sps=model.now.samples / model.now.total_s, stages=stages, limit=limit)


def _storage(view: View, model: RateModel) -> Ceiling:
    loading = view.loading
    if loading is None:
        return Ceiling("storage", None, "no DataLoader was iterated")
    if loading.fetch_blocked_s is None:
        return Ceiling("storage", None, "blocked time of the fetching threads was not measured")
    if model.now.fetch_blocked_s <= 0:
        return Ceiling("storage", None, "no fetch was blocked, so this run does not show the limit of its storage")
    rate = max(loading.num_workers, 1) * model.now.samples / model.now.fetch_blocked_s
    return Ceiling("storage", rate, "blocked time of a fetch, as many at once as there are workers")


def _preparation(view: View, model: RateModel) -> Ceiling:
    loading, now = view.loading, model.now
    if loading is None:
        return Ceiling("preparation", None, "no DataLoader was iterated")
    if loading.fetch_cpu_s is None or now.fetch_cpu_s <= 0:
        return Ceiling("preparation", None, "CPU time of the fetching threads was not measured")
    bps = max(loading.num_workers, 1) / now.fetch_cpu_s
    if loading.num_workers and now.cores is not None and now.worker_cpu_s + now.main_cpu_s > 0:
        bps = min(bps, now.cores / (now.worker_cpu_s + now.main_cpu_s))
    return Ceiling("preparation", bps * now.samples, "CPU time of a fetch, over the workers and the usable cores")


def _transfer(view: View, model: RateModel) -> Ceiling:
    batches = max(model.batches, 1)
    seconds = view.seconds("h2d") / batches + model.now.handover_s
    if seconds <= 0:
        return Ceiling("transfer", None, "no hand-over between processes and no copy to a device was seen")
    return Ceiling("transfer", model.now.samples / seconds, "hand-over from the workers and copies to the device")


def _device(view: View, model: RateModel) -> Ceiling:
    busy = view.usage.device_busy_share
    seconds = view.seconds(*COMPUTE_ACCOUNTS)
    if view.uses_gpu and busy:
        seconds = max(seconds, busy * view.ledger.window_s)
    if seconds <= 0:
        return Ceiling("device", None, "no forward, backward or optimizer step was seen")
    return Ceiling("device", model.now.samples * model.batches / seconds, "forward, backward and optimizer")
