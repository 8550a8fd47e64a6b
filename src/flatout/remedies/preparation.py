"""Remedies for the computing that workers do."""

from __future__ import annotations

from flatout.measure.array_reads import patch_shape
from flatout.measure.loader_stats import LoaderStats, TransformCost
from flatout.predict.context import Context
from flatout.predict.fetch_changes import (
    LOOKUP_GROUPS,
    READ_GROUPS,
    TOKENISE_GROUPS,
    TRANSFORM_GROUPS,
    scans_tables,
    without_groups,
)
from flatout.predict.pipeline import Change
from flatout.probe.events import OF_MONAI
from flatout.probe.injections.resized_pictures import BEGINNINGS
from flatout.remedies.proposal import DATA, IDENTICAL, Proposal, remedy
from flatout.remedies.volumes import cut_from_volumes
from flatout.results import Cause
from flatout.units import percent

# A step that leaves more than this part of the pixels is not worth moving.
_SHRINKS = 0.5
# Of torchvision's.
_SAME_EACH_TIME = {*BEGINNINGS, "ToTensor", "PILToTensor", "ToImage", "ToPureTensor", "ConvertImageDtype", "ToDtype"}
_SAME_EACH_TIME |= {"Normalize"}
# Packages that read parts of arrays, in which an index finds nothing.
_IN_CHUNKS = ("h5py", "zarr", "tables")
_BY_INDEX = 0.85  # of a search that goes through far more than the row that it finds
# The cost of a transform that keeps the size grows with the pixels; its fixed cost per call is unknown: the lower
# bound grants this much of the saving.
_LEAST_SAVED = 0.75


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
        # Another order of other parts is refused by the training that is asked for it.
        settings={"crop_first": True},
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
    if loader is None or too_early(loader.fetch.transforms) or _repeats(loader):
        return None
    of_monai = any(part.name.startswith(OF_MONAI) for part in loader.fetch.transforms)
    if patch_shape(loader.delivery) is not None:
        if context.run.uses_gpu:
            return None  # device_augmentation
        if of_monai or loader.functions.packages.get("transform") == "scipy":
            return None  # prepared_once, linear_interpolation
        title = "make transforms of patches cheaper: linear interpolation, one warp for rotation and scaling"
        how = "ndimage.affine_transform(patch, matrix, order=1) once, instead of rotate and zoom with order=3"
    elif context.run.uses_gpu:
        title, how = "run transforms on the GPU, a batch at a time", "batch = augment(batch.to(device))"
    elif not loader.fetch.transforms or of_monai:
        return None  # stored_samples, prepared_once
    elif any("Crop" in part.name or "Resize" in part.name for part in loader.fetch.transforms):
        title, how = "make transforms cheaper: crop before resizing, work on uint8", "v2.Compose([crop, resize, ...])"
    else:
        title, how = "make transforms cheaper: work on uint8, and on whole batches", "v2.Compose([...])(batch)"
    return Proposal(
        title=title,
        change=without_groups(loader, TRANSFORM_GROUPS, 0.5),
        least=Change(),
        most=without_groups(loader, TRANSFORM_GROUPS),
        how=how,
        basis="measured share of transforms; assumes that half of it can be moved or saved",
        memory_bytes=0,
    )


@remedy(("cpu_transform",), IDENTICAL, risk="medium")
def stored_samples(context: Context, cause: Cause) -> Proposal | None:
    """Prepare once what is the same in every epoch, where a data set's own code prepares its samples."""
    run, loader = context.run, context.run.loading
    if loader is None or loader.fetch.transforms or run.uses_gpu or patch_shape(loader.delivery) is not None:
        return None
    return Proposal(
        title="do once what is the same in every epoch",
        change=without_groups(loader, TRANSFORM_GROUPS, 0.5),
        least=Change(),
        most=without_groups(loader, TRANSFORM_GROUPS),
        how="store the prepared samples; leave only what is drawn at random to Dataset.__getitem__",
        basis="measured share of preparing samples; assumes that half of it is the same in every epoch",
        memory_bytes=None,
    )


@remedy(("cpu_transform",), IDENTICAL, risk="low")
def transformed_once(context: Context, cause: Cause) -> Proposal | None:
    """Store what transforms make, where they make the same in every pass."""
    loader = context.run.loading
    if loader is None or not _repeats(loader):
        return None
    return Proposal(
        title="transform each sample once: its transforms make the same in every epoch",
        change=without_groups(loader, TRANSFORM_GROUPS, 0.9),
        least=without_groups(loader, TRANSFORM_GROUPS, 0.5),
        most=without_groups(loader, TRANSFORM_GROUPS),
        how="self.samples = torch.stack([transform(picture) for picture in pictures]) in Dataset.__init__",
        basis="measured share of transforms; assumes that taking a stored sample leaves a tenth of it, at worst half",
        memory_bytes=None,
    )


def _repeats(loader: LoaderStats) -> bool:
    """True if every transform makes the same of a sample each time."""
    parts = loader.fetch.transforms
    return bool(parts) and all(part.name in _SAME_EACH_TIME for part in parts)


@remedy(("row_lookup",), IDENTICAL, risk="low")
def columns_as_arrays(context: Context, cause: Cause) -> Proposal | None:
    """Take the columns that samples need out of the table once."""
    loader = context.run.loading
    if loader is None:
        return None
    package = loader.functions.packages.get("lookup")
    of = f" of {package}" if package else ""
    return Proposal(
        title=f"convert the columns of the table to arrays once, not a row{of} for each sample",
        # An array gives a value in 0.1 us, a data frame a row in 50 us or more.
        change=without_groups(loader, LOOKUP_GROUPS, 0.95),
        least=without_groups(loader, LOOKUP_GROUPS, 0.5),
        most=without_groups(loader, LOOKUP_GROUPS),
        how="self.column = table['column'].to_numpy() in __init__; or Dataset.__getitems__(indices) for a whole batch",
        basis="measured share of looking rows up; assumes that an array leaves a twentieth of it, at worst half",
        memory_bytes=None,
    )


@remedy(("cpu_tokenise",), DATA, risk="low")
def tokenise_once(context: Context, cause: Cause) -> Proposal | None:
    """Train on tokens that were made before."""
    loader = context.run.loading
    if loader is None:
        return None
    return Proposal(
        title="tokenise the data set once, before the training",
        change=without_groups(loader, TOKENISE_GROUPS, 0.9),
        least=Change(),
        most=without_groups(loader, TOKENISE_GROUPS),
        how="dataset = dataset.map(tokenize, batched=True); or one tokenizer call for all texts of a batch",
        basis="measured share of tokenising; assumes that reading tokens leaves a tenth of it, where no text changes",
        memory_bytes=0,
    )


@remedy(("cpu_read",), IDENTICAL, risk="medium")
def cheaper_reads(context: Context, cause: Cause) -> Proposal | None:
    """Read a batch at a time, with an index where a database is searched."""
    loader = context.run.loading
    if loader is None or cut_from_volumes(loader) or loader.functions.packages.get("read") in _IN_CHUNKS:
        return None
    searches = loader.functions.searches_database
    scans = scans_tables(context.run, loader)
    return Proposal(
        title="read a whole batch at once" + (", with an index on the column that is searched" if searches else ""),
        change=without_groups(loader, READ_GROUPS, _BY_INDEX if scans else 0.5),
        least=Change(),
        most=without_groups(loader, READ_GROUPS, 0.95),
        how="CREATE INDEX ...; Dataset.__getitems__(indices) with one query"
        if searches
        else "Dataset.__getitems__(indices), which reads what a batch needs in one go; numpy.load(path, mmap_mode='r')",
        basis="measured share of reading on a core; assumes that "
        + (f"an index saves {percent(_BY_INDEX)} of it" if scans else "half of it can be saved"),
        memory_bytes=0,
    )
