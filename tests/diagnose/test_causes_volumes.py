"""Patches of volumes: what is read and unpacked for them, and augmentation as the larger bill."""

from __future__ import annotations

from typing import Any

import pytest

from flatout.diagnose.causes.reading import read_amplification
from flatout.diagnose.ranking import judge
from flatout.measure.array_reads import patch_shape, sample_values
from flatout.measure.loader_stats import ArrayReads
from flatout.measure.measured_run import MeasuredRun
from flatout.predict.context import Context
from flatout.remedies import propose
from flatout.results import Cause
from tests.diagnose.views import SAMPLES, starved

PATCH = (f"float32 [{SAMPLES}, 1, 64, 64, 64]", f"int64 [{SAMPLES}, 64, 64, 64]")
VOXELS = 64**3
WHOLE = ArrayReads("tifffile", 2 * 256**3, 2 * 256**3, 0.3, 2, True)  # an image and its labels, uint8
UNPACKING = {"decode": 0.9, "transform": 0.1}


def patches(arrays: ArrayReads | None, groups: dict[str, float], **changes: Any) -> MeasuredRun:
    """Patches of 64 voxels an edge, of which 1.5 MB are read: half of what they have in the batch."""
    given: dict[str, Any] = {"batch_bytes": 12 * VOXELS * SAMPLES, "bytes_read_per_sample": 1.5e6, "layout": PATCH}
    return starved(cpu_groups=groups, arrays=arrays, usage={"worker_bytes": 7 << 30}, **(given | changes))


def test_unpacking_whole_volumes_for_patches_is_named_with_what_it_costs() -> None:
    context = Context.of(patches(WHOLE, UNPACKING))
    causes = judge(context)[0]
    first = causes[0]
    assert first.id == "read_amplification" and first.title == "whole volumes are read and unpacked for each patch"
    unpacked, read, memory = first.evidence[:3]
    assert unpacked.values["ratio"] == pytest.approx(64) and "tifffile gives 32.0 MiB" in unpacked.text
    assert read.values["read_ratio"] == pytest.approx(1.5e6 / (2 * VOXELS)) and "per byte of a patch" in read.text
    assert memory.text == "a worker holds 7.0 GiB of memory at most, 1 worker 7.0 GiB"
    remedies = {remedy.id: remedy for remedy in propose(context, causes)[0]}
    assert "--volumes --patch 64" in remedies["staged_volumes"].how
    assert remedies["staged_volumes"].gain.low > 1.2
    assert not {"faster_decode", "chunked_reading", "cheaper_reads"} & set(remedies)  # JPEG, rows, SQL


@pytest.mark.parametrize(
    "arrays",
    [
        None,  # memory maps, readers of chunks
        ArrayReads("tifffile", 2 * VOXELS, 2 * VOXELS, 0.01, 2, True),  # files of the patches themselves
        ArrayReads("zarr", 2 * 1.9 * VOXELS, 2 * 1.9 * VOXELS, 0.01, 2, True),
    ],
)
def test_readers_of_little_more_than_a_patch_are_no_fault(arrays: ArrayReads | None) -> None:
    assert read_amplification(Context.of(patches(arrays, UNPACKING))) is None


@pytest.mark.parametrize(
    ("side", "seconds", "named"),
    [
        (2000, 0.05, True),  # most of a fetch: what follows is too cheap to use all of it
        (2000, 0.0001, False),  # little of it
        (300, 0.05, False),  # not far more than a sample has
    ],
)
def test_arrays_of_which_samples_keep_a_part_are_cut_where_reading_is_most_of_a_fetch(
    side: int, seconds: float, named: bool
) -> None:
    scenes = ArrayReads("tifffile", 3 * side * side, 3 * side * side, seconds, 1, volumes=False)
    view = patches(scenes, UNPACKING, layout=(f"float32 [{SAMPLES}, 3, 224, 224]",))
    found = read_amplification(Context.of(view))
    title = found.title if isinstance(found, Cause) else None
    assert title == ("whole arrays are read and unpacked for each patch" if named else None)


def test_augmentation_that_is_the_larger_bill_is_not_hidden() -> None:
    def transforming(share: float) -> Cause:
        groups = {"decode": 1.0 - share, "transform": share}
        return next(c for c in judge(Context.of(patches(WHOLE, groups, cores=1)))[0] if c.id == "cpu_transform")

    assert transforming(0.8).hidden_by is None
    assert transforming(0.2).hidden_by == "read_amplification"


def test_a_batch_tells_the_shape_of_its_patches_and_the_values_of_a_sample() -> None:
    delivery = starved(layout=PATCH).loading.delivery  # type: ignore[union-attr]
    assert patch_shape(delivery) == (64, 64, 64) and sample_values(delivery) == 2 * VOXELS
    pictures = starved(layout=(f"uint8 [{SAMPLES}, 3, 224, 224]",)).loading.delivery  # type: ignore[union-attr]
    assert patch_shape(pictures) is None  # three channels are no depth
