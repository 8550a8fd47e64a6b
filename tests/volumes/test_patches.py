"""Patches: the voxels of their place, drawn by seed and number alone, without bias at borders."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import zarr

from flatout.errors import UsageError
from flatout.formats.volume_chunks import chunk_edge, touched_ratio
from flatout.volumes import PatchDataset, open_volume
from flatout.volumes.layout import Layout
from flatout.volumes.patch_reader import ShardedVolume
from flatout.volumes.plan import VolumeOptions
from tests.volumes.synthetic import volume
from tests.volumes.test_staging_volumes import staged

PATCH = (24, 32, 32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two cases, of which the second is smaller than a patch along x."""
    root = tmp_path_factory.mktemp("volumes")
    for name, shape in (("a", (70, 90, 100)), ("b", (40, 40, 20))):
        image, labels = volume(shape, seed=ord(name))
        (root / "source" / name).mkdir(parents=True)
        np.save(root / "source" / name / "image.npy", image)
        np.save(root / "source" / name / "label.npy", labels)
    staged(root / "source", root / "staged", VolumeOptions(patch=PATCH, ignore=2))
    return root / "staged"


@pytest.mark.parametrize("written_by", ["flatout", "flatout-zstd", "zarr", "zarr-zstd"])
def test_any_box_holds_the_voxels_of_its_place(written_by: str, tmp_path: Path) -> None:
    shape = (70, 300, 90)
    image = np.random.default_rng(1).integers(0, 60000, shape).astype(np.uint16)
    if written_by.startswith("zarr"):  # chunks in another order, and none where all is zero
        image[:40, :160] = 0
        packing = {"compressors": zarr.codecs.ZstdCodec()} if "zstd" in written_by else {"compressors": None}
        zarr.create_array(store=tmp_path / "v", data=image, chunks=(16, 16, 16), shards=(64, 160, 64), **packing)
        path = tmp_path / "v"
    else:
        np.save(tmp_path / "v.npy", image)
        codec = "zstd" if "zstd" in written_by else "none"
        staged(tmp_path / "v.npy", tmp_path / "staged", VolumeOptions(patch=(64, 64, 64), compression=codec))
        path = tmp_path / "staged" / "v" / "image.zarr"
    opened = open_volume(path)
    assert isinstance(opened, ShardedVolume)
    padded = np.pad(image, 50, constant_values=7)
    rng = np.random.default_rng(2)
    for _ in range(60):
        start = [int(rng.integers(-45, size)) for size in shape]
        edges = [int(rng.integers(1, min(100, size + 50 - at))) for size, at in zip(shape, start, strict=True)]
        wanted = padded[tuple(slice(at + 50, at + 50 + n) for at, n in zip(start, edges, strict=True))]
        assert np.array_equal(opened.read(*start, *edges, fill=7), wanted)


def test_other_layouts_are_read_as_they_are_with_a_warning(tmp_path: Path) -> None:
    image, _ = volume((100, 50, 60))
    np.save(tmp_path / "a.npy", image.astype(">u2"))
    zarr.create_array(store=tmp_path / "b", data=image[None], chunks=(1, 100, 50, 60))
    with pytest.warns(UserWarning, match="128 KiB around each row"):
        mapped = open_volume(tmp_path / "a.npy")
    with pytest.warns(UserWarning, match=r"chunks of \(100, 50, 60\): a patch of 128³ reads 3\.\d times its bytes"):
        whole = open_volume(tmp_path / "b")
    wanted = np.pad(image, 5, constant_values=9)[2:32, :30, 30:]
    for opened in (mapped, whole):
        assert np.array_equal(opened.read(-3, -5, 25, 30, 30, 40, fill=9), wanted)
    with pytest.raises(UsageError, match="does not exist"):
        open_volume(tmp_path / "c")


def test_threads_forks_and_pickles_read_the_same(folder: Path) -> None:
    data = PatchDataset(folder, PATCH, seed=5)
    alone = [data[n] for n in range(12)]
    copy = pickle.loads(pickle.dumps(PatchDataset(folder, PATCH, seed=5)))
    with ThreadPoolExecutor(4) as pool:
        for other in (pool.map(data.__getitem__, range(12)), map(copy.__getitem__, reversed(range(12)))):
            found = list(other)
            for wanted, got in zip(
                alone, found if found[0][0].sum() == alone[0][0].sum() else found[::-1], strict=True
            ):
                assert np.array_equal(wanted[0], got[0]) and np.array_equal(wanted[1], got[1])
    if (pid := os.fork()) == 0:
        os._exit(0 if np.array_equal(data[3][0], alone[3][0]) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert not np.array_equal(PatchDataset(folder, PATCH, seed=6)[0][0], alone[0][0])


def test_a_patch_has_its_labels_and_says_what_lies_outside(folder: Path) -> None:
    image, labels = volume((40, 40, 20), seed=ord("b"))
    data = PatchDataset(folder, PATCH, ["b"])
    for n in range(10):
        z, y, x = data.place(n).start
        assert x == -6  # centred: the volume has 20 voxels, the patch 32
        found, of = data[n]
        assert np.array_equal(found[..., 6:26], image[z : z + 24, y : y + 32])
        assert np.array_equal(of[..., 6:26], labels[z : z + 24, y : y + 32])
        assert (of[..., :6] == 2).all() and (found[..., 26:] == 0).all()


def test_shares_of_foreground_and_of_volumes_are_as_asked_for(folder: Path) -> None:
    data = PatchDataset(folder, PATCH, foreground_share=0.25)
    places = [data.place(n) for n in range(600)]
    assert np.mean([place.foreground for place in places]) == pytest.approx(0.25, abs=0.06)
    voxels = np.array([60 * 90 * 100, 30 * 40 * 20])  # with a label
    share = voxels[0] / voxels.sum()
    assert np.mean([place.case == 0 for place in places]) == pytest.approx(share, abs=0.03)
    data = PatchDataset(folder, PATCH, weights="equal")
    assert np.mean([data.place(n).case for n in range(600)]) == pytest.approx(0.5, abs=0.07)
    data = PatchDataset(folder, PATCH, foreground_share=1)
    assert all((data[n][1] == 1).any() for n in range(20))


def test_voxels_near_a_border_are_not_seen_far_less_than_others(tmp_path: Path) -> None:
    shape, patch = (48, 48, 48), (24, 24, 24)
    np.save(tmp_path / "image.npy", np.zeros(shape, np.uint8))
    np.save(tmp_path / "label.npy", np.zeros(shape, np.uint8))
    staged(tmp_path, tmp_path.with_name("staged"), VolumeOptions(patch=patch))
    data = PatchDataset(tmp_path.with_name("staged"), patch)
    seen = np.zeros(shape)
    for n in range(1500):
        z, y, x = data.place(n).start
        seen[z : z + 24, y : y + 24, x : x + 24] += 1
    corner = seen[0, 0, 0] / seen.mean()
    assert corner > 0.1  # of offsets from 0 to S − p it would be 0.0005
    assert seen.std() / seen.mean() < 0.6


def test_the_chunk_is_a_quarter_of_the_patch() -> None:
    assert [chunk_edge((n, n, n)) for n in (32, 64, 100, 128, 192, 256, 512)] == [16, 16, 16, 32, 32, 64, 64]
    assert touched_ratio((128,) * 3, (32,) * 3) == pytest.approx(1.9, abs=0.02)
    assert touched_ratio((128,) * 3, (128,) * 3) == pytest.approx(7.9, abs=0.1)
    assert Layout.of((20, 300, 40), np.dtype("u1"), (128, 128, 128)).shard == (32, 256, 64)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"patch": (0, 8, 8)}, "at least 1 voxel"),
        ({"patch": 16}, "patch 16: give three edges"),
        ({"patch": None}, "patch None: give three edges"),
        ({"patch": (16.5, 16, 16)}, "give three edges"),
        ({"patch": ("a", 1, 1)}, "give three edges"),
        ({"foreground_share": "a"}, "foreground_share 'a': give a share from 0 to 1"),
        ({"seed": -1}, "seed -1: give a whole number of at least 0"),
        ({"seed": 1.5}, "seed 1.5: give a whole number"),
        ({"seed": None}, "seed None: give a whole number"),
        ({"length": 0}, "length 0: give a whole number of at least 1"),
        ({"cases": ["c"]}, "there is no case c; there are a, b"),
        ({"cases": []}, "no cases"),
        ({"foreground_share": 1.5}, "from 0 to 1"),
        ({"weights": "size"}, "voxels or equal"),
    ],
)
def test_a_value_that_is_not_allowed_is_named(how: dict[str, object], message: str, folder: Path) -> None:
    with pytest.raises(UsageError, match=message):
        PatchDataset(folder, **({"patch": PATCH} | how))  # type: ignore[arg-type]
