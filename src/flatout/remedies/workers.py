"""The number and the lifetime of workers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flatout.measure.loader_stats import LoaderStats
from flatout.measure.thresholds import NOISE_SHARE
from flatout.measure.validation_workers import ValidationWorkers
from flatout.predict.context import Context
from flatout.predict.fetch_changes import computing_threads, storage_share
from flatout.predict.host_memory import added_bytes
from flatout.predict.pipeline import NO_UNEVENNESS, Change
from flatout.predict.workers import enough_workers, first_workers
from flatout.remedies.proposal import IDENTICAL, Proposal, remedy
from flatout.results import Cause, Gain

# New workers compute beside the first steps of an epoch: in five trainings, keeping them gave up to this power of the
# measured factor.
_STARTED_BESIDE = 1.6
# Workers share the position in a file that they inherit; the injected setting opens it anew in each.
_OPEN_FILES = "; if the data set keeps a file or an archive open: open it in each worker, in worker_init_fn"


@remedy(("no_workers", "too_few_workers", "storage_latency", "storage_bandwidth", "small_files"), IDENTICAL, risk="low")
def num_workers(context: Context, cause: Cause) -> Proposal | None:
    """Raise num_workers to the smallest number that meets the demand."""
    loader = context.run.loading
    if loader is None:
        return None
    workers = enough_workers(context.run, context.model)
    if workers <= loader.settings.num_workers:
        return None
    keep = keeping_workers(loader)
    restarts = ", persistent_workers=True" if keep and not loader.settings.persistent_workers else ""
    change = first_workers(context.run, workers)
    bound = min(context.model.now.changed(change).limits().items(), key=lambda limit: limit[1])[0]
    after = {
        "training": "the training step itself",
        "workers": "the time of a fetch",
        "cores": "the usable cores",
        "serial": "a lock",
    }
    upper = "; memory of a worker by RSS, an upper bound" if context.run.usage.worker_bytes_source == "RSS" else ""
    return Proposal(
        title=f"raise num_workers from {loader.settings.num_workers} to {workers}",
        change=change,
        how=f"DataLoader(..., num_workers={workers}{restarts}){'' if loader.settings.num_workers else _OPEN_FILES}",
        settings={"num_workers": workers, **keep},
        recipe=f"images.workers={workers}",
        basis=f"measured fetch and step times; the next limit is {after[bound]}{upper}",
        memory_bytes=added_bytes(context.run, workers, None),
    )


def keeping_workers(loader: LoaderStats) -> dict[str, bool]:
    """The setting that goes with workers, but for a loader that is made for each pass: it has none to keep."""
    return {} if loader.settings.rebuilt else {"persistent_workers": True}


@remedy(("too_many_workers",), IDENTICAL, risk="low")
def fewer_workers(context: Context, cause: Cause) -> Proposal | None:
    """Lower num_workers to what the cores can run."""
    loader = context.run.loading
    if loader is None:
        return None
    workers = enough_workers(context.run, context.model)
    if workers >= loader.settings.num_workers:
        return None
    return Proposal(
        title=f"lower num_workers from {loader.settings.num_workers} to {workers}",
        change=Change(num_workers=workers),
        most=Change(num_workers=workers, throughput_factor=NO_UNEVENNESS),
        how=f"DataLoader(..., num_workers={workers})",
        settings={"num_workers": workers},
        recipe=f"images.workers={workers}",
        basis="the cores are full: fewer workers take turns less often and leave memory free",
        memory_bytes=added_bytes(context.run, workers, None),
    )


@remedy(("too_many_workers",), IDENTICAL, risk="low")
def worker_threads(context: Context, cause: Cause) -> Proposal | None:
    """Use one computing thread in each worker."""
    loader, now = context.run.loading, context.model.now
    if loader is None or now.fetch_cpu_s <= 0:
        return None
    threads = computing_threads(context.run, loader)
    if threads <= 1.0:
        return None
    # The time of the other threads is partly work that the one thread has to do, partly spinning at barriers:
    # between none and all of it remains, and the geometric middle is predicted.
    storage = storage_share(loader)
    left = max(now.worker_cpu_s / now.fetch_cpu_s, 1.0)
    middle = Change(worker_threads_removed=True, fetch_cpu_factor=math.sqrt(left), fetch_blocked_factor=storage)
    most = Change(worker_threads_removed=True, fetch_blocked_factor=storage)
    return Proposal(
        title=f"compute with 1 thread in each worker instead of {threads:.0f}",
        change=middle,
        least=Change(),
        most=most,
        how="in worker_init_fn: torch.set_num_threads(1); with OpenCV also cv2.setNumThreads(0)",
        settings={"worker_threads": 1},
        basis="CPU time of the workers' other threads: how much of it is real work is not known",
        memory_bytes=0,
    )


@remedy(("needless_workers", "worker_restart"), IDENTICAL, risk="low")
def without_workers(context: Context, cause: Cause) -> Proposal | None:
    """Fetch in the training process."""
    loader, whatif = context.run.loading, context.whatif
    if loader is None or whatif is None or loader.settings.num_workers == 0:
        return None
    gain = whatif.without_workers()
    if gain.predicted < 1.0 + NOISE_SHARE:
        return None
    return Proposal(
        title="fetch batches in the training process: num_workers=0",
        change=Change(num_workers=0),
        gain=gain,
        how="DataLoader(..., num_workers=0), without persistent_workers and prefetch_factor",
        settings={"num_workers": 0},
        basis="the recorded batches, simulated without workers, against those with these, simulated and measured",
        memory_bytes=added_bytes(context.run, 0, None),
    )


@dataclass(frozen=True, slots=True)
class _Kept:
    """Whose workers one remedy keeps: what its settings do, or what the user does.

    Attributes:
        own: the training's.
        theirs: the validation's.
        once: by hand, as the line that builds the DataLoader has to be moved: a rebuilt one has no workers to keep.
        by_setting: the validation's can be kept by a setting.
    """

    own: bool
    theirs: ValidationWorkers | None
    once: bool
    by_setting: bool

    @classmethod
    def of(cls, loader: LoaderStats, theirs: ValidationWorkers | None) -> _Kept:
        """What can be kept together."""
        own, rebuilt = loader.restarts_workers, loader.settings.rebuilt
        once = (rebuilt or not own) and (theirs is None or theirs.rebuilt)
        own = own and (once or not rebuilt)
        by_setting = theirs is not None and not theirs.rebuilt and theirs.without_gradients
        too = theirs is not None and (once or by_setting or not (theirs.rebuilt or own))
        return cls(own, theirs if too else None, once, by_setting)

    @property
    def title(self) -> str:
        whose = "" if self.own else " for the validation"
        if self.once:
            return f"build the DataLoader{whose} once, with persistent_workers=True"
        return f"set persistent_workers=True{whose}"

    @property
    def how(self) -> str:
        if self.once:
            return "loader = DataLoader(..., persistent_workers=True) before the loop over epochs, not in it"
        too = ", the validation's too" if self.own and self.theirs is not None else ""
        return f"DataLoader(..., persistent_workers=True){too}"

    @property
    def settings(self) -> dict[str, bool] | None:
        names = {"persistent_workers": self.own, "validation_workers_kept": self.by_setting}
        return {name: True for name, wanted in names.items() if wanted and not self.once} or None


@remedy(("worker_restart",), IDENTICAL, risk="low")
def persistent_workers(context: Context, cause: Cause) -> Proposal | None:
    """Keep workers alive between passes, of the training or of its validation."""
    run, loader, validation = context.run, context.run.loading, context.run.validation_workers
    if loader is None or not (loader.restarts_workers or validation):
        return None
    kept = _Kept.of(loader, validation)
    restarts_s = cause.share * run.ledger.window_s - (validation.seconds if validation is not None else 0.0)
    lost_s = (kept.theirs.seconds if kept.theirs is not None else 0.0) + (restarts_s if kept.own else 0.0)
    lost_s /= context.model.batches
    in_gap_s = min(lost_s, context.model.now.between_steps_s)
    left_s, repeated = 0.0, 1.0
    if kept.own:
        # The first batch of an epoch is still fetched while the training waits for it.
        first_s = float(loader.fetch.wall_s.mean()) if len(loader.fetch.wall_s) else 0.0
        left_s = min(first_s * loader.delivery.epochs_started / context.model.batches, in_gap_s / 2)
        repeated -= loader.workers.first_fetch.part  # what each new worker reads anew, the kept ones have
    change = Change(between_steps_removed_s=in_gap_s - left_s, fetch_cpu_factor=repeated, fetch_blocked_factor=repeated)
    # What the restarts take of the window is measured, and what the model leaves of it is the least that is saved: new
    # workers also read and import while the first steps compute, on the same cores.
    modelled = context.model.gain(change).predicted
    saved = (lost_s - left_s) * context.model.batches / run.ledger.window_s
    waits = kept.theirs.first_waits_s / run.ledger.window_s if kept.theirs is not None else 0.0
    # A part of these waits is for workers that are not ready yet; another one for the fetch, which stays.
    measured, most = (max(1.0 / max(1.0 - saved - part * waits, 0.01), modelled) for part in (0.5, 1.0))
    return Proposal(
        title=kept.title,
        change=change,
        gain=Gain(measured, 0.9 * modelled, most**_STARTED_BESIDE if kept.own else most),
        how=kept.how,
        settings=kept.settings,
        basis="measured time of the workers' start, of their first fetches beyond later ones, and of the wait for them",
        memory_bytes=0 if kept.theirs is None else None,  # both DataLoaders have workers then
    )


@remedy(("worker_restart",), IDENTICAL, risk="medium")
def start_method(context: Context, cause: Cause) -> Proposal | None:
    """Fork workers instead of starting interpreters, if they are started repeatedly."""
    loader = context.run.loading
    # A process that uses a GPU has threads and a context that do not survive a fork well.
    if loader is None or context.run.uses_gpu is not False or not loader.restarts_workers:
        return None
    if loader.settings.start_method not in ("spawn", "forkserver"):
        return None
    theirs = context.run.validation_workers
    lost_s = cause.share * context.run.ledger.window_s - (theirs.seconds if theirs is not None else 0.0)
    lost_s /= context.model.batches
    in_gap_s = min(lost_s, context.model.now.between_steps_s)
    return Proposal(
        title=f"start workers by fork instead of {loader.settings.start_method}",
        change=Change(between_steps_removed_s=0.8 * in_gap_s),
        least=Change(between_steps_removed_s=0.4 * in_gap_s),
        most=Change(between_steps_removed_s=in_gap_s),
        how="DataLoader(..., multiprocessing_context='fork')",
        settings={"start_method": "fork"},
        basis="measured time of starting workers; a fork costs a fraction of it",
        memory_bytes=0,
    )
