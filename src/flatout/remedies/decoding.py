"""Files decoded less, smaller, or once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from flatout.measure.array_reads import sample_values
from flatout.measure.loader_stats import LoaderStats, TransformCost
from flatout.predict.context import Context
from flatout.predict.fetch_changes import (
    DECODE_GROUPS,
    PICTURES,
    TABLE_PACKAGES,
    TEXT_PACKAGES,
    TRANSFORM_GROUPS,
    reads_again,
    repeats_within_pass,
    same_beginning,
    samples_there_are,
    shrinking_share,
    unpacked_ratio,
    without_groups,
)
from flatout.predict.pipeline import Change
from flatout.probe.injections.resized_pictures import BEGINNINGS
from flatout.remedies.proposal import DATA, IDENTICAL, Proposal, remedy
from flatout.remedies.volumes import cut_from_volumes
from flatout.results import Cause
from flatout.units import size

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
PUT_BACK, MOST_PUT_BACK = 0.1, 0.4
# Only JPEGs can be decoded at a smaller size. Where no file of a picture was seen, they may be.
_JPEGS = {".jpg", ".jpeg", ".jpe", ".jfif"}
_OTHER_PICTURES = {".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
# Decoders of pictures; of sounds, tables and the like, less cannot be decoded.
PICTURE_PACKAGES = ("PIL", "cv2", "torchvision", "imageio", "skimage", "turbojpeg", "simplejpeg", "jpeg4py")
# A volume that as many samples are cut from is unpacked again within one pass.
_OFTEN = 4.0
_STORED = 4.0  # times the pixels of a sample, of smaller copies of pictures
_ROOM_FOR_OTHERS, _LEAST_ROOM = 4, 1 << 30  # times what the training's samples take; bytes
_LEAST_SMALLER = 0.5  # of the pixels that go, for which copies are worth it
_OF_PIXELS = 0.7  # of the transforms of such pictures, assumed to take time in proportion to the pixels
_MOST_HALVINGS = 3  # of the sides, by decoders of JPEGs
_DRAFT = "image.draft('RGB', ({0}, {0})) before image.load(); or store resized copies"


@remedy(("cpu_decode",), DATA, risk="medium")
def faster_decode(context: Context, cause: Cause) -> Proposal | None:
    """Decode less: at the size that the transforms need, or from smaller files."""
    loader = context.run.loading
    if loader is None or cut_from_volumes(loader):
        return None
    if loader.functions.packages.get("decode", PICTURE_PACKAGES[0]) not in PICTURE_PACKAGES:
        return None
    times, part = _needless_pixels(loader)
    smaller = part >= _LEAST_SMALLER  # which is smaller_files
    of_jpegs = not loader.storage.extensions.keys() & _OTHER_PICTURES or loader.storage.extensions.keys() & _JPEGS
    if smaller and not of_jpegs:
        return None
    if smaller and (halvings := _halvings(times)):
        return _at_scale(loader, times, halvings)
    shrinking = shrinking_share(loader)

    def shrunk(part: float) -> Change:
        return Change(fetch_cpu_factor=1.0 - part * shrinking)

    return Proposal(
        title="decode at reduced size" + (", or resize the files once" if not smaller else "")
        if of_jpegs
        else "resize the files once",
        # A JPEG decoded at half its size costs about half: the entropy decoding stays, the rest falls to a quarter.
        # What makes a small picture of it finds fewer pixels, too.
        change=_together(without_groups(loader, DECODE_GROUPS, 0.5), shrunk(0.5)),
        least=Change(),
        most=_together(without_groups(loader, DECODE_GROUPS, 0.9), shrunk(0.9)),
        how=_DRAFT.format(SHORT_SIDE)
        if of_jpegs
        else "store copies of the pictures in the size that the transforms need, and read those",
        settings={"jpeg_short_side": SHORT_SIDE} if of_jpegs else None,
        recipe="images.decoder=pillow --set images.scaled_decode=true" if of_jpegs else None,
        basis="measured share of decoding; assumes that half of it can be saved, which depends on the files",
        memory_bytes=0,
    )


def _halvings(times: float) -> int:
    """How often a decoder can halve the sides of pictures that leave twice those of a sample.

    Square samples are assumed, and pictures whose short side is four fifths of that of a square.
    """
    return min(int(math.log2(max(0.8 * math.sqrt(times) / 2, 1.0))), _MOST_HALVINGS)


def _at_scale(loader: LoaderStats, times: float, halvings: int) -> Proposal:
    """Decode JPEGs with far more pixels than a sample at a half, a quarter or an eighth of their sides.

    The entropy decoding stays, and is assumed to be a third of the decoding.
    """
    kept = sample_values(loader.delivery) or 0.0
    short = max(16 * round(2 * math.sqrt(kept / BYTES_PER_PIXEL) / 16), 16)
    part = 1.0 - 0.25**halvings

    def scaled(of_decoding: float, of_transforms: float) -> Change:
        decoding = without_groups(loader, DECODE_GROUPS, of_decoding * part)
        return _together(decoding, without_groups(loader, TRANSFORM_GROUPS, of_transforms * part))

    return Proposal(
        title="decode at reduced size",
        change=scaled(2 / 3, _OF_PIXELS),
        least=scaled(1 / 3, 0.0),
        most=scaled(0.9, 1.0),
        how=_DRAFT.format(short),
        settings={"jpeg_short_side": short},
        recipe="images.decoder=pillow --set images.scaled_decode=true",
        basis=f"measured share of decoding and of transforms; pictures have {times:,.0f} times the pixels of a sample, "
        f"of which JPEG decoders give 1 in {4**halvings} for two thirds less time, which depends on the files",
        memory_bytes=0,
    )


@remedy(("cpu_decode",), DATA, risk="medium")
def smaller_files(context: Context, cause: Cause) -> Proposal | None:
    """Store pictures that are far larger than samples once in a size near that."""
    loader = context.run.loading
    if loader is None:
        return None
    times, part = _needless_pixels(loader)
    if part < _LEAST_SMALLER:
        return None

    def fewer_pixels(of_transforms: float) -> Change:
        """What makes samples of them goes through fewer pixels, too; how much of it depends on pixels is not known."""
        transforms = without_groups(loader, TRANSFORM_GROUPS, part * of_transforms)
        return _together(without_groups(loader, DECODE_GROUPS, part), transforms)

    return Proposal(
        title=f"store the pictures smaller: they have {times:,.0f} times the pixels of a sample",
        change=fewer_pixels(_OF_PIXELS),
        least=without_groups(loader, DECODE_GROUPS, part / 2),
        most=fewer_pixels(1.0),
        how="resize the files once, to twice the sides of a sample: image.resize(sides).save(path, quality=95)",
        basis=f"measured share of decoding and of transforms, which grow with the pixels, of which {_STORED:.0f} times "
        "those of a sample are kept",
        memory_bytes=0,
    )


def _needless_pixels(loader: LoaderStats) -> tuple[float, float]:
    """Values of a picture for each one of a sample, and the part that smaller copies leave out; (0, 0): unknown.

    Not of parts that many samples take from one picture.
    """
    arrays, kept = loader.storage.arrays, sample_values(loader.delivery)
    if arrays is None or not kept or arrays.package != PICTURES or repeats_within_pass(loader):
        return 0.0, 0.0
    return arrays.values / kept, max(1.0 - _STORED * kept / arrays.values, 0.0)


# Of arrays that are read whole for a part of them, unpacking and reading are one call of their library.
@remedy(("cpu_decode", "cpu_transform", "read_amplification"), IDENTICAL, risk="medium", mechanics="shared_samples")
def decoded_once(context: Context, cause: Cause) -> Proposal | None:
    """Keep what files decode to in memory that all workers share, where all of it fits and passes repeat."""
    loader, available = context.run.loading, context.run.usage.available_bytes
    if loader is None or available is None or cut_from_volumes(loader) or same_beginning(loader):
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
    resized = Change(fetch_cpu_factor=1.0 - share_of_fetch(loader, beginning))
    return Proposal(
        title=f"decode {'and resize ' if beginning else ''}each file once: {size(needed)} of memory hold them all",
        change=_together(without_groups(loader, groups, 1.0 - PUT_BACK), resized),
        least=_together(without_groups(loader, groups, 1.0 - MOST_PUT_BACK), resized),
        most=_together(without_groups(loader, (*DECODE_GROUPS, "read")), resized),
        how="decode into one shared array before the training, and index it in Dataset.__getitem__",
        settings={"sample_cache_bytes": wanted_room(needed, room)},
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


def wanted_room(needed: int, room: int) -> int:
    """Bytes to ask for: other sets, such as that of the validation, may take what is left of them."""
    return min(room, max(_ROOM_FOR_OTHERS * needed, _LEAST_ROOM))


def share_of_fetch(loader: LoaderStats, parts: Sequence[TransformCost]) -> float:
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
