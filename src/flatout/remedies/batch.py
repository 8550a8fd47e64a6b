"""The fixed cost of a step, shared among more samples."""

from __future__ import annotations

from flatout import units
from flatout.measure.last_steps import Doubled
from flatout.measure.loader_stats import LoaderStats
from flatout.predict.context import Context
from flatout.predict.device_memory import DeviceMemory, device_memory
from flatout.predict.learning_rate import scaling
from flatout.predict.measured import fixed_part
from flatout.predict.step_changes import shorter_step
from flatout.probe.settings import DEFAULT_PREFETCH_FACTOR
from flatout.remedies.proposal import OPTIMISATION, Proposal, remedy
from flatout.results import Cause

_FACTORS = (8.0, 4.0, 2.0, 1.5, 1.25)
# More than twice the size only where that was measured to pay, and up to this size: what larger ones do to the learning
# depends more on the training.
_USUAL = 64
# As long as the fixed cost is more than this part of a step, and an epoch keeps so many steps.
_FIXED_PART = 1 / 3
_LEAST_STEPS = 20


@remedy(("small_batch", "overhead_bound"), OPTIMISATION, risk="medium")
def bigger_batch(context: Context, cause: Cause) -> Proposal | None:
    """Share the fixed cost of a step among more samples."""
    loader = context.run.loading
    doubled = context.run.last_steps.doubled
    if loader is None and doubled is not None:
        return _by_hand(context, cause, doubled)
    if loader is None or loader.settings.batch_size is None:
        return None
    size = loader.settings.batch_size
    memory = device_memory(context.run)
    most = _most_factor(loader, doubled, size)
    # Sizes that fit: without a GPU, or if its memory is unknown, the largest.
    factors = (factor for factor in _FACTORS if factor <= most)
    bigger = next((int(size * factor) for factor in factors if _fits(memory, int(size * factor), size)), None)
    if bigger is None:
        return None
    # Demand b / (a b + c): a larger batch shares the fixed cost c among more samples.
    fixed_s, surely = cause.share * context.model.now.total_s, 0.0
    if doubled is not None and doubled.fixed > 0:
        fixed_s = min(fixed_s, doubled.fixed * context.model.now.step_s)
        surely = doubled.fixed_low / doubled.fixed
    saved_s = (1.0 - size / bigger) * fixed_s
    depth_bytes = None
    if loader.settings.num_workers == 0:
        depth_bytes = (
            round((bigger / size - 1.0) * loader.delivery.batch_bytes)
            if loader.delivery.batch_bytes is not None
            else None
        )
    elif loader.delivery.batch_bytes is not None:
        # Each batch in flight grows.
        depth = loader.settings.num_workers * (loader.settings.prefetch_factor or DEFAULT_PREFETCH_FACTOR)
        depth_bytes = round((bigger / size - 1.0) * depth * loader.delivery.batch_bytes)
    return Proposal(
        title=f"raise the batch size from {size} to {bigger}",
        change=shorter_step(saved_s),
        least=shorter_step(surely * saved_s),
        how=f"DataLoader(..., batch_size={bigger}); adapt the learning rate; device memory grows with the batch",
        settings={"batch_size": bigger, "lr_factor": scaling(bigger / size, context.run.process.optimizer).factor},
        recipe=f"training.batch_size={bigger}",
        basis=f"{fixed_part(context) or 'measured cost that does not grow with the batch'}; {_told(memory, bigger)}",
        memory_bytes=depth_bytes,
    )


def _most_factor(loader: LoaderStats, doubled: Doubled | None, size: int) -> float:
    """The factor on the batch size that shares the fixed cost of a step well enough: 2; of small batches, 4 or 8."""
    factor, fixed = 2, doubled.fixed if doubled is not None else 0.0
    samples = loader.settings.dataset_len or 0

    def left() -> float:
        return fixed / factor / (1.0 - fixed + fixed / factor)

    while factor < max(_FACTORS) and left() > _FIXED_PART:
        larger = 2 * factor * size
        if larger > _USUAL or (samples and samples < _LEAST_STEPS * larger):
            break
        factor *= 2
    return float(factor)


def _by_hand(context: Context, cause: Cause, doubled: Doubled) -> Proposal:
    """Twice the samples in a training that makes its batches without a DataLoader."""
    size = round(doubled.samples)
    saved_s = 0.5 * cause.share * context.model.now.total_s
    surely = doubled.fixed_low / doubled.fixed if doubled.fixed > 0 else 0.0
    return Proposal(
        title=f"raise the batch size from {size} to {2 * size}",
        change=shorter_step(saved_s),
        least=shorter_step(surely * saved_s),
        how="take more samples where the training makes its batches; adapt the learning rate",
        basis=str(fixed_part(context)),
        memory_bytes=None,
    )


def _fits(memory: DeviceMemory | None, bigger: int, size: int) -> bool:
    return bigger > size and (memory is None or memory.fits(bigger))


def _told(memory: DeviceMemory | None, size: int) -> str:
    if memory is None:
        return "device memory was not predicted"
    low, high = memory.at(size)
    return f"device memory {units.size(low)} to {units.size(high)} of {units.size(memory.total_bytes)}, predicted"


@remedy(("small_batch",), OPTIMISATION, risk="medium")
def gradient_accumulation(context: Context, cause: Cause) -> Proposal | None:
    """Step the optimizer after every second backward pass."""
    each_s = context.run.seconds("optimizer", "collective") / context.model.batches
    if each_s <= 0:
        return None
    saved_s = 0.5 * each_s
    exchange = " and of exchanging gradients" if context.run.seconds("collective") > 0 else ""
    return Proposal(
        title="step the optimizer after every second batch",
        change=shorter_step(saved_s),
        least=shorter_step(0.3 * saved_s),
        how="if (step + 1) % 2 == 0: optimizer.step(); optimizer.zero_grad()  # and loss / 2",
        settings={"accumulate": 2},
        basis=f"measured time of the optimizer{exchange}; it learns as with twice the batch",
        memory_bytes=0,
    )
