"""Bad volumes: one line with the file, and nothing half-written under a final name."""

from __future__ import annotations

import errno
import gzip
import os
from collections.abc import Callable
from pathlib import Path

import nibabel
import numpy as np
import pytest
import tifffile
import zarr

from flatout.errors import DiskFull, UsageError
from flatout.volumes import convert, open_volume
from flatout.volumes.plan import VolumeOptions, plan
from tests.volumes.synthetic import volume, write_slices
from tests.volumes.test_staging_volumes import staged

IMAGE, LABELS = volume((24, 40, 40))


def _pair(root: Path, image: object, labels: object) -> None:
    np.save(root / "image.npy", image)  # type: ignore[arg-type]
    np.save(root / "label.npy", labels)  # type: ignore[arg-type]


def _slices(root: Path, names: list[str], edge: Callable[[int], int] = lambda number: 20) -> None:
    for number, name in enumerate(names):
        tifffile.imwrite(root / name, np.full((20, edge(number)), 3, np.uint8))


def _cut(path: Path, share: float = 0.6) -> None:
    os.truncate(path, int(path.stat().st_size * share))


def _cut_slices(root: Path) -> None:
    write_slices(root / "s", IMAGE)
    _cut(root / "s" / "0005.tif")


def _cut_tif(root: Path, **how: str) -> None:
    tifffile.imwrite(root / "a.tif", IMAGE, **how)
    _cut(root / "a.tif")


def _cut_zarr(root: Path) -> None:
    zarr.create_array(store=root / "a.zarr", data=IMAGE, chunks=(8, 40, 40))
    _cut(root / "a.zarr" / "c" / "1" / "0" / "0")


def _not_finite(value: float) -> np.ndarray:
    image = IMAGE.astype(np.float32)
    image[7, 3, 3] = value
    return image


def _nifti_spacings(root: Path, image: float, label: float) -> None:
    for name, array, spacing in (("a.nii", IMAGE, image), ("a_label.nii", LABELS, label)):
        nibabel.save(nibabel.Nifti1Image(array.transpose(2, 1, 0), np.diag([1, 1, spacing, 1])), root / name)


def _damaged_gzip(root: Path, at: int | None) -> None:
    """One byte of stored data changed, so that only the checksum tells; None: the checksum cut off."""
    path, array = root / "a.nii.gz", IMAGE.transpose(2, 1, 0)
    packed = gzip.compress(nibabel.Nifti1Image(array, np.eye(4)).to_bytes(), 0)
    if at is None:
        path.write_bytes(packed[:-8])
        return
    data = bytearray(packed)
    data[at] ^= 1
    path.write_bytes(data)


def _saved(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    np.save(path, IMAGE)


def _placed(root: Path, what: str, flipped: bool = False, origin: float = 0.0) -> None:
    """An image, and labels of the same shape elsewhere; axes x, y, z of 40, 40, 24 voxels."""
    for name, array in (("a.nii.gz", IMAGE), (f"a_{what}.nii.gz", LABELS)):
        affine = np.diag([2.0, 1.0, 1.0, 1.0])
        if name != "a.nii.gz":
            affine[0, 0] *= -1 if flipped else 1
            affine[0, 3] = 28.0 if flipped else origin
        nibabel.save(nibabel.Nifti1Image(array.transpose(2, 1, 0), affine), root / name)


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "shapes": (lambda root: _pair(root, IMAGE, LABELS[:20]), r"label.npy: its shape is \(20, 40, 40\).*image.npy"),
    "spacings": (lambda root: _nifti_spacings(root, 3, 2), r"a_label.nii: its voxels are \(2.0, 1.0, 1.0\) apart"),
    "spacing of 1": (lambda root: _nifti_spacings(root, 1, 2), "a_label.nii: its voxels are .* correct the spacing"),
    "missing slice": (lambda root: _slices(root, ["s1.tif", "s2.tif", "s4.tif"]), "slice 3 is missing, between s2.tif"),
    "double slice": (lambda root: _slices(root, ["1.tif", "2.tif", "02.tif"]), "are the same slice"),
    "order unclear": (lambda root: _slices(root, ["a1_2.tif", "a2_1.tif", "a3_7.tif"]), "differ in 2 numbers"),
    "unlike names": (lambda root: _slices(root, ["a1.tif", "a2.tif", "b3.tif"]), "unlike"),
    "slice shapes": (lambda root: _slices(root, ["1.tif", "2.tif", "3.tif"], lambda n: 20 + n), r"2.tif: it is uint8"),
    "cut slice": (_cut_slices, "0005.tif: it is cut off"),
    "cut tif": (_cut_tif, "a.tif: it (is cut off|cannot be read)"),
    "cut packed tif": (lambda root: _cut_tif(root, compression="zlib"), "a.tif: (it|its) "),
    "cut zarr": (_cut_zarr, "a.zarr: slices 0 to 15 cannot be read"),
    "cut npy": (lambda root: (np.save(root / "a.npy", IMAGE), _cut(root / "a.npy")), "a.npy: it cannot be read as npy"),
    "cut npz": (lambda root: (np.savez(root / "a.npz", IMAGE), _cut(root / "a.npz")), "a.npz: it cannot be read"),
    "label values": (
        lambda root: _pair(root, IMAGE, LABELS.astype(np.int16) + 300),
        "the label 302, allowed are 0 to 255: number .*--ignore 302",
    ),
    "negative labels": (
        lambda root: _pair(root, IMAGE, LABELS.astype(np.int8) - 1),
        "slice .* the label -1, .*--ignore -1",
    ),
    "halves": (lambda root: _pair(root, IMAGE, LABELS * 0.5), "labels that are no whole numbers"),
    "all ignored": (lambda root: _pair(root, IMAGE, LABELS * 0 + 2), "every voxel of its labels is ignored"),
    "nan": (lambda root: np.save(root / "a.npy", _not_finite(np.nan)), "slice 7 holds NaN, .* in 1 of its voxels"),
    "infinite": (lambda root: np.save(root / "a.npy", _not_finite(np.inf)), "slice 7 holds NaN, infinite"),
    "complex": (lambda root: np.save(root / "a.npy", IMAGE.astype(complex)), "its voxels are complex128"),
    "four axes": (lambda root: np.save(root / "a.npy", np.zeros((2, 4, 4, 4))), "three axes z, y, x"),
    "colours": (
        lambda root: tifffile.imwrite(root / "a.tif", np.zeros((4, 8, 8, 3), "u1"), photometric="rgb"),
        "colours",
    ),
    "coloured slices": (
        lambda root: [
            tifffile.imwrite(root / f"{z}.tif", np.zeros((8, 8, 3), "u1"), photometric="rgb") for z in range(3)
        ],
        "0.tif: a slice has two axes",
    ),
    "a second channel": (
        lambda root: (
            [_saved(root / "imagesTr" / f"a_000{at}.npy") for at in range(2)] + [_saved(root / "labelsTr" / "a.npy")]
        ),
        "imagesTr/a_0001.npy: it is another channel of case a",
    ),
    "flipped gzip": (
        lambda root: _damaged_gzip(root, -len(IMAGE.tobytes()) // 3),
        "a.nii.gz: it is cut off or damaged",
    ),
    "gzip without its end": (lambda root: _damaged_gzip(root, None), "a.nii.gz: it is cut off or damaged after 38,400"),
    "mirrored labels": (
        lambda root: _placed(root, "label", flipped=True),
        "by its header, its voxels lie up to 128 mm",
    ),
    "moved labels": (lambda root: _placed(root, "label", origin=2.0), "by its header, its voxels lie up to 2 mm"),
    "nothing": (lambda root: (root / "readme.txt").write_text("hello"), "no volume is there"),
    "not a tif": (lambda root: (root / "a.tif").write_text("hello"), "a.tif: it cannot be read as tif"),
    "labels alone": (lambda root: np.save(root / "a_label.npy", LABELS), "a_label.npy: there is no image of case a"),
    "two arrays": (
        lambda root: np.savez(root / "a.npz", a=IMAGE, b=IMAGE),
        "which of its volumes .a, b. is the image is not clear",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_volume_is_named_in_one_line(name: str, tmp_path: Path) -> None:
    write, message = BAD[name]
    (tmp_path / "source").mkdir()
    write(tmp_path / "source")
    with pytest.raises(UsageError, match=message) as refused:
        staged(tmp_path / "source", tmp_path / "staged", VolumeOptions(patch=(32, 32, 32), ignore=2))
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "staged" / "volumes.json").exists()
    named = [path for path in tmp_path.glob("staged/*/*.zarr") if not path.name.startswith(".")]
    assert all(open_volume(path).shape == IMAGE.shape for path in named)


def test_a_disk_that_fills_up_keeps_whole_shards_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "a.npy", volume((300, 40, 40))[0])
    left = [1]

    def fsync(descriptor: int) -> None:
        left[0] -= 1
        if left[0] < -1:
            raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(convert.os, "fsync", fsync)
    (part,) = plan(tmp_path / "a.npy", VolumeOptions(patch=(64, 64, 64)))
    (tmp_path / "z").mkdir()
    with (
        part.slabs() as slabs,
        pytest.raises(DiskFull, match="the disk is full: make room, and give the same command again"),
    ):
        convert.convert(slabs, tmp_path / "z", part.layout, 1 << 20, lambda voxels: None)
    assert [file.name for file in (tmp_path / "z" / "c").rglob("*") if file.is_file()] == ["0"]


@pytest.mark.parametrize("harm", ["missing", "cut", "index"])
def test_a_damaged_staged_volume_is_named_when_it_is_read(harm: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", IMAGE)
    staged(tmp_path / "a.npy", tmp_path / "staged")
    shard = tmp_path / "staged" / "a" / "image.zarr" / "c" / "0" / "0" / "0"
    if harm == "missing":
        shard.unlink()
    elif harm == "cut":
        _cut(shard)
    else:
        content = bytearray(shard.read_bytes())
        content[-9] ^= 1
        shard.write_bytes(content)
    with pytest.raises(
        UsageError, match=r"c/0/0/0: the shard is (missing|cut off or damaged).*: stage its volume again"
    ):
        open_volume(shard.parents[3]).read(0, 0, 0, 8, 8, 8)


def test_a_destination_with_other_files_is_left_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", IMAGE)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(UsageError, match=r"thesis.txt is there, which no staging of volumes"):
        staged(tmp_path / "a.npy", tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
