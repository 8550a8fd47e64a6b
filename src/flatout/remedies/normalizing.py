"""Pictures handed over as uint8, and made floats a batch at a time."""

from __future__ import annotations

from flatout.measure.loader_stats import TransformCost
from flatout.predict.context import Context
from flatout.predict.fetch_changes import collate_share, fewer_bytes
from flatout.predict.pipeline import Change
from flatout.remedies.proposal import IDENTICAL, Proposal, remedy
from flatout.results import Cause
from flatout.units import duration

_FIRST, _THEN = ("ToTensor",), ("Normalize",)  # of torchvision's first generation
_SECOND = ("PILToTensor", "ToImage", "ConvertImageDtype", "ToDtype", "Normalize", "ToPureTensor")
_OF_FLOATS = ("Normalize", "ConvertImageDtype", "ToDtype")
# Parts of their time that go: ToTensor makes a tensor of the uint8 first, in a third to two thirds of its time for
# pictures of 32 to 224 pixels a side.
_REMOVED = {"ToTensor": 0.5, "PILToTensor": 0.0, "ToImage": 0.0}
_LEAST = 0.5
# Of a batch on a core: measured were 1.3 ns for pictures of 32 pixels a side, and 2.6 ns for those of 224.
_BATCHED_S = (1.3e-9, 2.6e-9)
_SMALL = 64 * 64  # pixels
_CHANNELS = 3.0
_QUARTER = 0.25  # a byte a value instead of four
_COPY_HIDDEN = 0.5  # part of the saved copy that a GPU's work may have hidden

_BY_NUMBER = "dividing by torch.tensor(255.0, device=device) instead keeps the last bits, too"  # torch.div of CUDA


@remedy(("cpu_transform", "no_workers", "too_few_workers", "h2d"), IDENTICAL, risk="low")
def late_normalize(context: Context, cause: Cause) -> Proposal | None:
    """Convert and normalize whole batches, on the GPU if there is one."""
    run, loader = context.run, context.run.loading
    if loader is None or not len(loader.fetch.item_s):
        return None
    parts = waiting_parts(loader.fetch.transforms)
    saved_s = _saved_s(parts, bool(run.uses_gpu))
    each_s = float(loader.fetch.item_s.mean())
    if not parts or saved_s <= 0 or each_s <= 0:
        return None
    share = min(saved_s / each_s, 1.0) * (1.0 - collate_share(loader))
    fetching, copying, hidden = Change(fetch_cpu_factor=1.0 - share), Change(), Change()
    if run.uses_gpu:
        copied_s = (1.0 - _QUARTER) * run.seconds("h2d") / context.model.batches
        copying = Change(step_removed_s=copied_s).and_then(fewer_bytes(run, context.model, _QUARTER))
        hidden = Change(step_removed_s=_COPY_HIDDEN * copied_s)
    where = "on the GPU" if run.uses_gpu else "a batch at a time"
    return Proposal(
        title=f"hand pictures over as uint8, and convert and normalize them {where}",
        change=fetching.and_then(copying),
        least=Change(fetch_cpu_factor=1.0 - _LEAST * share).and_then(hidden),
        how="batch = batch.to(device).float().div_(255).sub_(mean).div_(std), and PILToTensor() in the data set"
        + (f"; {_BY_NUMBER}" if run.uses_gpu else ""),
        settings={"late_normalize": True},
        basis=(
            f"the measured time of {' and '.join(part.name for part in parts)}, {duration(saved_s)} of the "
            f"{duration(each_s)} that a sample takes; what a batch of them takes instead was measured elsewhere"
        ),
        memory_bytes=0,
    )


def waiting_parts(parts: tuple[TransformCost, ...]) -> tuple[TransformCost, ...]:
    """The transforms at the end of a pipeline that can be done on whole batches; empty: it does not end with such."""
    names = [part.name for part in parts]
    for start, name in enumerate(names):
        first = name in _FIRST and all(one in (*_FIRST, *_THEN) for one in names[start:])
        if first or (name in _SECOND and all(one in _SECOND for one in names[start:])):
            return parts[start:] if first or any(one in _OF_FLOATS for one in names[start:]) else ()
    return ()


def _saved_s(parts: tuple[TransformCost, ...], uses_gpu: bool) -> float:
    """Seconds of a sample on a core that are saved, less those that its share of a batch takes."""
    pixels = max((part.pixels_in for part in parts), default=0.0)
    views = max((part.calls for part in parts), default=1.0)
    batched_s = 0.0 if uses_gpu else _BATCHED_S[pixels > _SMALL] * _CHANNELS * pixels * views
    removed_s = sum(part.calls * part.mean_s * _REMOVED.get(part.name, 1.0) for part in parts)
    return removed_s - batched_s
