"""Remedies for the computing that workers do."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from flatout.measure.array_reads import patch_shape
from flatout.measure.loader_stats import LoaderStats, TransformCost
from flatout.predict.context import Context
from flatout.predict.fetch_changes import (
    DECODE_GROUPS,
    LOOKUP_GROUPS,
    READ_GROUPS,
    TABLE_PACKAGES,
    TEXT_PACKAGES,
    TOKENISE_GROUPS,
    TRANSFORM_GROUPS,
    reads_again,
    repeats_within_pass,
    samples_there_are,
    scans_tables,
    shrinking_share,
    unpacked_ratio,
    without_groups,
)
from flatout.predict.pipeline import Change
from flatout.probe.injections.resized_pictures import BEGINNINGS
from flatout.remedies.proposal import DATA, IDENTICAL, Proposal, remedy
from flatout.remedies.volumes import cut_from_volumes
from flatout.results import Cause
from flatout.units import percent, size

# Of a decoded picture: the size from which crops of 224 pixels are commonly taken.
SHORT_SIDE = 256
# Of a decoded picture: 8 bits for each colour.
BYTES_PER_PIXEL = 3.0
# The same of one whose size was not seen, per byte of its file: JPEGs of photographs are 8 to 15 times smaller.
BYTES_PER_FILE_BYTE = 15.0
# The caches of files, the workers and the training keep the other half of the memory that is left.
MEMORY_SHARE = 0.5
# Part of the decoding that putting stored pixels into a picture takes instead, usually and at the worst: 0.2 ms of
# 2.7 ms were measured for photographs of 500 x 375 pixels.
_PUT_BACK, _MOST_PUT_BACK = 0.1, 0.4
# Only JPEGs can be decoded at a smaller size. Where no file of a picture was seen, they may be.
_JPEGS = {".jpg", ".jpeg", ".jpe", ".jfif"}
_OTHER_PICTURES = {".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
# Decoders of pictures; of sounds, tables and the like, less cannot be decoded.
PICTURE_PACKAGES = ("PIL", "cv2", "torchvision", "imageio", "skimage", "turbojpeg", "simplejpeg", "jpeg4py")
# A volume that as many samples are cut from is unpacked again within one pass.
_OFTEN = 4.0
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


@remedy(("cpu_decode",), DATA, risk="medium")
def faster_decode(context: Context, cause: Cause) -> Proposal | None:
    """Decode less: at the size that the transforms need, or from smaller files."""
    loader = context.run.loading
    if loader is None or cut_from_volumes(loader):
        return None
    if loader.functions.packages.get("decode", PICTURE_PACKAGES[0]) not in PICTURE_PACKAGES:
        return None
    of_jpegs = not loader.storage.extensions.keys() & _OTHER_PICTURES or loader.storage.extensions.keys() & _JPEGS
    shrinking = shrinking_share(loader)

    def shrunk(part: float) -> Change:
        return Change(fetch_cpu_factor=1.0 - part * shrinking)

    smaller = f"image.draft('RGB', ({SHORT_SIDE}, {SHORT_SIDE})) before image.load(); or store resized copies"
    return Proposal(
        title="decode at reduced size, or resize the files once" if of_jpegs else "resize the files once",
        # A JPEG decoded at half its size costs about half: the entropy decoding stays, the rest falls to a quarter.
        # What makes a small picture of it finds fewer pixels, too.
        change=_together(without_groups(loader, DECODE_GROUPS, 0.5), shrunk(0.5)),
        least=Change(),
        most=_together(without_groups(loader, DECODE_GROUPS, 0.9), shrunk(0.9)),
        how=smaller
        if of_jpegs
        else "store copies of the pictures in the size that the transforms need, and read those",
        settings={"jpeg_short_side": SHORT_SIDE} if of_jpegs else None,
        recipe="images.decoder=pillow --set images.scaled_decode=true" if of_jpegs else None,
        basis="measured share of decoding; assumes that half of it can be saved, which depends on the files",
        memory_bytes=0,
    )


# Of arrays that are read whole for a part of them, unpacking and reading are one call of their library.
@remedy(("cpu_decode", "cpu_transform", "read_amplification"), IDENTICAL, risk="medium", mechanics="shared_samples")
def decoded_once(context: Context, cause: Cause) -> Proposal | None:
    """Keep what files decode to in memory that all workers share, where all of it fits and passes repeat."""
    loader, available = context.run.loading, context.run.usage.available_bytes
    if loader is None or available is None or cut_from_volumes(loader):
        return None
    repeats = unpacked_ratio(loader) or 1.0  # of an array of which each sample keeps a part, within one pass
    if not reads_again(loader) and repeats < _OFTEN:
        return None  # it may be the only pass
    needed = decoded_bytes(loader)
    room = int(MEMORY_SHARE * available)
    if needed is None or needed > room:
        return None
    arrays = loader.storage.arrays
    beginning = _beginning(loader)
    if (cause.id == "read_amplification" and arrays is None) or (cause.id == "cpu_transform" and not beginning):
        return None
    groups = (*DECODE_GROUPS, "read") if cause.id == "read_amplification" else DECODE_GROUPS
    resized = Change(fetch_cpu_factor=1.0 - _share(loader, beginning))
    return Proposal(
        title=f"decode {'and resize ' if beginning else ''}each file once: {size(needed)} of memory hold them all",
        change=_together(without_groups(loader, groups, 1.0 - _PUT_BACK), resized),
        least=_together(without_groups(loader, groups, 1.0 - _MOST_PUT_BACK), resized),
        most=_together(without_groups(loader, (*DECODE_GROUPS, "read")), resized),
        how="decode into one shared array before the training, and index it in Dataset.__getitem__",
        # Other sets, such as that of the validation, may take what is left of the room.
        settings={"sample_cache_bytes": room},
        basis=(
            "measured share of decoding and of the transforms before the first random one, "
            f"{'once each file was decoded' if repeats_within_pass(loader) else 'from the second pass on'}; "
            "assumes that copying what is stored takes a tenth of the decoding, at worst two fifths"
        ),
        memory_bytes=needed,
    )


def _beginning(loader: LoaderStats) -> list[TransformCost]:
    """The transforms that every picture begins with, and that make the same of it each time."""
    return list(itertools.takewhile(lambda part: part.name in BEGINNINGS, loader.fetch.transforms))


def _share(loader: LoaderStats, parts: Sequence[TransformCost]) -> float:
    """Part of a fetch that transforms take, 0..1."""
    item_s = float(loader.fetch.item_s.mean()) if len(loader.fetch.item_s) else 0.0
    return min(sum(part.calls * part.mean_s for part in parts) / item_s, 1.0) if item_s > 0 else 0.0


def _together(decoding: Change, resizing: Change) -> Change:
    """Two changes of different parts of a fetch."""
    left = max(decoding.fetch_cpu_factor + resizing.fetch_cpu_factor - 1.0, 0.0)
    return replace(decoding, fetch_cpu_factor=left)


def decoded_bytes(loader: LoaderStats) -> int | None:
    """All samples of a pass, decoded, and resized if their transforms begin so; None: number or size is unknown."""
    arrays = loader.storage.arrays
    if loader.functions.packages.get("decode") in (*TABLE_PACKAGES, *TEXT_PACKAGES):
        return None
    pixels = next((part.pixels_in for part in loader.fetch.transforms if part.pixels_in), None)
    if pixels and (beginning := _beginning(loader)):
        pixels = beginning[-1].pixels_out
    file_bytes = loader.storage.bytes_read_per_sample
    each = pixels * BYTES_PER_PIXEL if pixels else file_bytes and file_bytes * BYTES_PER_FILE_BYTE
    each = arrays.bytes if arrays and not _beginning(loader) else each
    if arrays and repeats_within_pass(loader):  # of each file that was seen, one
        return round(each * loader.delivery.samples / (loader.storage.opens_per_file or 1.0)) if each else None
    samples = samples_there_are(loader)
    # A volume that is unpacked for each of its slices is stored once.
    return round(each * samples / max(unpacked_ratio(loader) or 1.0, 1.0)) if each and samples else None


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
    if patch_shape(loader.delivery) is not None:
        if context.run.uses_gpu:
            return None  # device_augmentation
        title = "make transforms of patches cheaper: linear interpolation, one warp for rotation and scaling"
        how = "ndimage.affine_transform(patch, matrix, order=1) once, instead of rotate and zoom with order=3"
    elif context.run.uses_gpu:
        title, how = "run transforms on the GPU, a batch at a time", "batch = augment(batch.to(device))"
    elif not loader.fetch.transforms:
        return None  # stored_samples
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
