"""Remedies for the computing that workers do."""

from __future__ import annotations

from flatout.measure.loader_stats import TransformCost
from flatout.predict.context import Context
from flatout.predict.fetch_changes import DECODE_GROUPS, TRANSFORM_GROUPS, without_groups
from flatout.predict.pipeline import Change
from flatout.remedies.proposal import DATA, Proposal, remedy
from flatout.results import Cause

# Of a decoded picture: the size from which crops of 224 pixels are commonly taken.
SHORT_SIDE = 256
# A step that leaves more than this part of the pixels is not worth moving.
_SHRINKS = 0.5
# The cost of a transform that keeps the size grows with the pixels; its fixed cost per call is unknown: the lower
# bound grants this much of the saving.
_LEAST_SAVED = 0.75


@remedy(("cpu_decode",), DATA, risk="medium")
def faster_decode(context: Context, cause: Cause) -> Proposal | None:
    """Decode less: at the size that the transforms need, or from smaller files."""
    loader = context.run.loading
    if loader is None:
        return None
    return Proposal(
        title="decode at reduced size, or resize the files once",
        # A JPEG decoded at half its size costs about half: the entropy decoding stays, the rest falls to a quarter.
        change=without_groups(loader, DECODE_GROUPS, 0.5),
        least=Change(),
        most=without_groups(loader, DECODE_GROUPS, 0.9),
        how=f"image.draft('RGB', ({SHORT_SIDE}, {SHORT_SIDE})) before image.load(); or store resized copies",
        settings={"jpeg_short_side": SHORT_SIDE},
        recipe="images.decoder=pillow --set images.scaled_decode=true",
        basis="measured share of decoding; assumes that half of it can be saved, which depends on the files",
        memory_bytes=0,
    )


@remedy(("cpu_transform",), DATA, risk="low")
def crop_first(context: Context, cause: Cause) -> Proposal | None:
    """Cut the picture to its final size before working on its pixels."""
    loader = context.run.loading
    if loader is None or not len(loader.fetch.item_s):
        return None
    found = too_early(loader.fetch.transforms)
    if found is None:
        return None
    cut, before = found
    saved_s = sum(part.calls * part.mean_s * (1.0 - cut.pixels_out / part.pixels_in) for part in before)
    share = min(saved_s / float(loader.fetch.item_s.mean()), 1.0)
    names = ", ".join(part.name for part in before)
    return Proposal(
        title=f"put {cut.name} before {names}",
        change=Change(fetch_cpu_factor=1.0 - share),
        least=Change(fetch_cpu_factor=1.0 - _LEAST_SAVED * share),
        how=f"Compose([{cut.name}(...), {', '.join(f'{part.name}(...)' for part in before)}, ...])",
        basis=(
            f"the measured time of each transform, and pixels from {before[0].pixels_in:,.0f} "
            f"to {cut.pixels_out:,.0f}; takes their cost to grow with the pixels"
        ),
        memory_bytes=0,
    )


def too_early(parts: tuple[TransformCost, ...]) -> tuple[TransformCost, list[TransformCost]] | None:
    """The first part that shrinks the picture, with the size-keeping parts before it; None if there are no such parts.

    Args:
        parts: the pipeline, in order.
    """
    before: list[TransformCost] = []
    for part in parts:
        if part.pixels_in and part.pixels_out and part.pixels_out <= _SHRINKS * part.pixels_in:
            return (part, before) if before else None
        if part.pixels_in and part.pixels_out == part.pixels_in:
            before.append(part)
    return None


@remedy(("cpu_transform",), DATA, risk="medium")
def cheaper_transform(context: Context, cause: Cause) -> Proposal | None:
    """Move transforms from single samples on the CPU to whole batches on the GPU."""
    loader = context.run.loading
    # If a transform is known to come too early, moving it is the remedy.
    if loader is None or too_early(loader.fetch.transforms):
        return None
    if context.run.uses_gpu:
        title, how = "run transforms on the GPU, a batch at a time", "batch = augment(batch.to(device))"
    else:
        title, how = "make transforms cheaper: crop before resizing, work on uint8", "v2.Compose([crop, resize, ...])"
    return Proposal(
        title=title,
        change=without_groups(loader, TRANSFORM_GROUPS, 0.5),
        least=Change(),
        most=without_groups(loader, TRANSFORM_GROUPS),
        how=how,
        basis="measured share of transforms; assumes that half of it can be moved or saved",
        memory_bytes=0,
    )
