"""What people have is staged once, the same voxels, whatever their format."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import h5py
import nibabel
import nrrd
import numpy as np
import pytest
import tifffile
import zarr

from flatout.errors import DiskFull, UsageError
from flatout.volumes import open_volume, read_staged
from flatout.volumes.outlook import look_ahead
from flatout.volumes.plan import VolumeOptions
from flatout.volumes.readback import check
from flatout.volumes.staging import VolumeProgress, VolumeSummary, stage_volumes
from tests.volumes.synthetic import Array, volume, write_slices

OPTIONS = VolumeOptions(patch=(64, 64, 64), ignore=2)


def staged(root: Path, destination: Path, options: VolumeOptions = OPTIONS) -> VolumeSummary:
    return stage_volumes(root, destination, options, lambda progress: None, lambda line: None)


def voxels(folder: Path, name: str) -> Array:
    found = open_volume(folder / name)
    return found.read(0, 0, 0, *found.shape)


def _nifti(path: Path, array: Array, spacing: float = 1.0) -> None:
    nibabel.save(nibabel.Nifti1Image(array.transpose(2, 1, 0), np.diag([0.5, 0.5, spacing, 1])), path)


def _hdf5(path: Path, image: Array, labels: Array) -> None:
    with h5py.File(path, "w") as file:
        file["raw"], file["label"] = image, labels


def _ome(path: Path, array: Array) -> None:
    group = zarr.open_group(path, mode="w")
    group.create_array("0", data=array[None, None], chunks=(1, 1, 32, 64, 64))
    axes = [{"name": name} for name in "tczyx"]
    scale = [{"type": "scale", "scale": [1, 1, 2.0, 0.5, 0.5]}]
    group.attrs["ome"] = {
        "multiscales": [{"axes": axes, "datasets": [{"path": "0", "coordinateTransformations": scale}]}]
    }


def _zarr(path: Path, array: Array, **how: int) -> None:
    zarr.create_array(store=path, data=array, chunks=(32, 32, 32), **how)  # type: ignore[arg-type]


# Writes images/NAME and labels/NAME (an HDF5 file holds both).
FORMATS: dict[str, Callable[[Path, Path, Array, Array], object]] = {
    "slices": lambda i, of, image, labels: (write_slices(i / "a", image), write_slices(of / "a", labels)),
    "lzw": lambda i, of, image, labels: (
        tifffile.imwrite(i / "a.tif", image, compression="lzw"),
        tifffile.imwrite(of / "a.tif", labels, compression="zlib", predictor=True),
    ),
    "bigendian": lambda i, of, image, labels: (
        tifffile.imwrite(i / "a.tiff", image.astype(">u2"), byteorder=">"),
        np.save(of / "a.npy", labels.astype(">i4")),
    ),
    "npz": lambda i, of, image, labels: (
        np.save(i / "a.npy", np.asfortranarray(image)),
        np.savez_compressed(of / "a.npz", labels),
    ),
    "nifti": lambda i, of, image, labels: (
        _nifti(i / "a_0000.nii.gz", image, spacing=2.0),
        _nifti(of / "a.nii", labels.astype(np.float64), spacing=2.0),
    ),
    "nrrd": lambda i, of, image, labels: (
        nrrd.write(str(i / "a.nrrd"), image.transpose(2, 1, 0)),
        nrrd.write(str(of / "a.nrrd"), labels.transpose(2, 1, 0), {"encoding": "raw"}),
    ),
    "hdf5": lambda i, of, image, labels: _hdf5(i / "a.h5", image, labels),
    "zarr": lambda i, of, image, labels: (
        _zarr(i / "a.zarr", image.astype(np.float32)),
        _zarr(of / "a.zarr", labels, zarr_format=2),
    ),
    "ome": lambda i, of, image, labels: (_ome(i / "a.ome.zarr", image), tifffile.imwrite(of / "a.ome.tif", labels)),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_keeps_its_voxels(name: str, tmp_path: Path) -> None:
    image, labels = volume((40, 50, 60))
    images, of_labels = tmp_path / "source" / "images", tmp_path / "source" / "labels"
    images.mkdir(parents=True)
    of_labels.mkdir()
    FORMATS[name](images, of_labels, image, labels)
    summary = staged(tmp_path / "source", tmp_path / "staged")
    (case,) = read_staged(tmp_path / "staged").cases
    assert case.label is not None
    assert np.array_equal(voxels(tmp_path / "staged", case.image), image)
    assert np.array_equal(voxels(tmp_path / "staged", case.label), labels)
    assert np.array_equal(zarr.open_array(tmp_path / "staged" / case.label, mode="r")[:], labels)
    assert case.spacing == ((2.0, 0.5, 0.5) if name in ("nifti", "ome") else (1.0, 1.0, 1.0))
    assert (summary.classes, summary.ignore) == ((0, 1), 2)
    assert summary.intensity["mean"] == pytest.approx(image.mean())
    assert summary.intensity["std"] == pytest.approx(image.std())
    assert summary.intensity["p99_5"] == np.sort(image, axis=None)[int(np.ceil(0.995 * image.size)) - 1]


def test_small_memory_gives_the_same_files_as_much(tmp_path: Path) -> None:
    image, _ = volume((40, 520, 50))
    np.save(tmp_path / "a.npy", image)
    staged(tmp_path / "a.npy", tmp_path / "much", VolumeOptions(compression="none"))
    staged(tmp_path / "a.npy", tmp_path / "little", VolumeOptions(compression="none", memory_bytes=1))
    for file in (tmp_path / "much").rglob("c/*/*/*"):
        assert (tmp_path / "little" / file.relative_to(tmp_path / "much")).read_bytes() == file.read_bytes()
    assert np.array_equal(voxels(tmp_path / "little", "a/image.zarr"), image)


class _Killed(BaseException):
    pass


def test_a_staging_that_was_killed_goes_on_at_whole_shards(tmp_path: Path) -> None:
    image, _ = volume((600, 64, 64))
    np.save(tmp_path / "a.npy", image)

    def die_in_second_layer(progress: VolumeProgress) -> None:
        if progress.written > 300 * 64 * 64:
            raise _Killed

    with pytest.raises(_Killed):
        stage_volumes(tmp_path / "a.npy", tmp_path / "staged", OPTIONS, die_in_second_layer, lambda line: None)
    partial = tmp_path / "staged" / "a" / ".image.zarr.partial"
    first = partial / "c" / "0" / "0" / "0"
    written = first.stat().st_mtime_ns
    with (partial / "shards.jsonl").open("a") as journal:
        journal.write('{"place": [1, 0')  # as a kill leaves it
    with pytest.raises(UsageError, match=r"volumes\.json"):
        read_staged(tmp_path / "staged")
    staged(tmp_path / "a.npy", tmp_path / "staged")
    assert np.array_equal(voxels(tmp_path / "staged", "a/image.zarr"), image)
    assert (tmp_path / "staged" / "a" / "image.zarr" / "c" / "0" / "0" / "0").stat().st_mtime_ns == written
    assert not list((tmp_path / "staged").rglob("*partial*"))


def test_a_changed_source_is_staged_anew_and_an_unchanged_one_is_kept(tmp_path: Path) -> None:
    image, _ = volume((40, 40, 40))
    np.save(tmp_path / "a.npy", image)
    staged(tmp_path / "a.npy", tmp_path / "staged")
    assert staged(tmp_path / "a.npy", tmp_path / "staged").n_arrays_kept == 1
    np.save(tmp_path / "a.npy", image[:, ::-1])
    assert staged(tmp_path / "a.npy", tmp_path / "staged").n_arrays_kept == 0
    assert np.array_equal(voxels(tmp_path / "staged", "a/image.zarr"), image[:, ::-1])


def test_what_was_damaged_since_is_staged_anew_and_the_rest_kept(tmp_path: Path) -> None:
    source, destination, said = tmp_path / "source", tmp_path / "staged", []
    source.mkdir()
    image, labels = volume((40, 300, 300))
    for name in ("a", "b", "c"):
        np.save(source / f"{name}.npy", image)
        np.save(source / f"{name}_label.npy", labels)
    staged(source, destination)
    flipped, cut, gone, kept = (
        destination / name / "c" / "0" / "0" / "0"
        for name in ("a/image.zarr", "b/label.zarr", "c/image.zarr", "c/label.zarr")
    )
    data = bytearray(flipped.read_bytes())
    data[1000] ^= 1
    flipped.write_bytes(data)
    cut.write_bytes(cut.read_bytes()[:100])
    gone.unlink()
    untouched, beside = kept.stat().st_ino, (destination / "a/image.zarr/c/0/1/1").stat().st_ino
    summary = stage_volumes(source, destination, OPTIONS, lambda progress: None, said.append)
    assert (summary.n_arrays, summary.n_arrays_kept) == (6, 3)
    assert [line for line in said if "written anew" in line] == [
        f"{path}: it is missing or not what was staged: written anew" for path in (flipped, cut, gone)
    ]
    assert not check(destination).damaged
    assert all(np.array_equal(voxels(destination, f"{name}/image.zarr"), image) for name in "abc")
    assert np.array_equal(voxels(destination, "b/label.zarr"), labels)
    assert (kept.stat().st_ino, (destination / "a/image.zarr/c/0/1/1").stat().st_ino) == (untouched, beside)


def test_a_copy_of_a_staged_set_with_new_times_is_kept(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", volume((40, 40, 40))[0])
    staged(tmp_path / "a.npy", tmp_path / "staged")
    for path in (tmp_path / "staged").rglob("*"):
        os.utime(path, (path.stat().st_mtime + 1000,) * 2)
    assert staged(tmp_path / "a.npy", tmp_path / "staged").n_arrays_kept == 1


@pytest.mark.parametrize("inner", ["source/staged", "."])
def test_a_destination_that_shares_files_with_its_source_is_refused(inner: str, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    np.save(tmp_path / "source" / "a.npy", volume((40, 40, 40))[0])
    with pytest.raises(UsageError, match=r"the source .*: choose a folder apart from it"):
        staged(tmp_path / "source", tmp_path / inner)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.npy", "source"]


def test_a_destination_that_is_a_file_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", volume((40, 40, 40))[0])
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match=r"DEST .*file: it is a file: give a new or an empty folder"):
        staged(tmp_path / "a.npy", tmp_path / "file")
    with pytest.raises(UsageError, match=r"DEST .*below: it cannot be made"):
        staged(tmp_path / "a.npy", tmp_path / "file" / "below")


def test_names_that_begin_with_their_role_and_files_with_both_are_cases(tmp_path: Path) -> None:
    image, labels = volume((40, 40, 40))
    for name in ("role-first", "both"):
        (tmp_path / name).mkdir()
    np.save(tmp_path / "role-first" / "volume-0.npy", image)
    np.save(tmp_path / "role-first" / "segmentation-0.npy", labels)
    np.savez(tmp_path / "both" / "0.npz", raw=image, label=labels)
    for name in ("role-first", "both"):
        summary = staged(tmp_path / name, tmp_path / f"{name}-staged")
        assert (summary.n_cases, summary.n_labelled) == (1, 1)
        assert np.array_equal(voxels(tmp_path / f"{name}-staged", "0/image.zarr"), image)
        assert np.array_equal(voxels(tmp_path / f"{name}-staged", "0/label.zarr"), labels)


def test_volumes_that_are_left_out_are_named_and_unlabelled_ones_are_in_no_statistics(tmp_path: Path) -> None:
    image, labels = volume((40, 40, 40))
    for name in ("imagesTr", "labelsTr", "imagesTs", ".old"):
        (tmp_path / "source" / name).mkdir(parents=True)
    np.save(tmp_path / "source" / "imagesTr" / "a_0000.npy", image)
    np.save(tmp_path / "source" / "labelsTr" / "a.npy", labels)
    np.save(tmp_path / "source" / "imagesTs" / "t_0000.npy", np.full_like(image, 255))
    np.save(tmp_path / "source" / ".old" / "a.npy", image)
    said: list[str] = []
    summary = stage_volumes(tmp_path / "source", tmp_path / "staged", OPTIONS, lambda progress: None, said.append)
    assert said == ["left out, as hidden: .old/a.npy"]
    assert (summary.n_cases, summary.n_labelled) == (2, 1)
    assert summary.intensity["mean"] == pytest.approx(float(image.mean()))


def test_percentiles_of_floats_are_the_same_after_saving_and_small(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(40, 40, 40)).astype(np.float32)
    np.save(tmp_path / "a.npy", values)
    summary = staged(tmp_path / "a.npy", tmp_path / "staged", VolumeOptions(patch=(64, 64, 64), compression="none"))
    assert summary.intensity["p99_5"] == pytest.approx(float(np.percentile(values, 99.5)), abs=0.01)
    predicted = look_ahead(tmp_path / "a.npy", tmp_path / "x", VolumeOptions(patch=(64, 64, 64), compression="none"))
    assert predicted.staged_bytes == pytest.approx(summary.staged_bytes, rel=0.05)


def test_a_dry_run_writes_nothing_and_names_bytes_and_codecs(tmp_path: Path) -> None:
    image, labels = volume((64, 64, 64))
    write_slices(tmp_path / "source" / "a" / "image", image)
    write_slices(tmp_path / "source" / "a" / "label", labels * 0)
    outlook = look_ahead(tmp_path / "source", tmp_path / "staged", OPTIONS)
    assert (outlook.n_cases, outlook.n_labelled, outlook.voxels) == (1, 1, 64**3)
    assert outlook.codecs == {"none": 1, "zstd": 1}
    assert 64**3 < outlook.staged_bytes < 1.1 * 64**3 and outlook.source_bytes > 2 * 64**3
    assert not (tmp_path / "staged").exists()


def test_a_dry_run_counts_whole_chunks_at_borders(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", volume((40, 40, 40))[0])
    options = VolumeOptions(patch=(64, 64, 64), compression="none")
    predicted = look_ahead(tmp_path / "a.npy", tmp_path / "staged", options).staged_bytes
    staged(tmp_path / "a.npy", tmp_path / "staged", options)
    written = sum(path.stat().st_size for path in (tmp_path / "staged").glob("a/image.zarr/c/*/*/*"))
    assert predicted == 48**3 <= written < 1.01 * predicted


def test_a_check_names_the_damaged_shard(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", volume((40, 40, 40))[0])
    staged(tmp_path / "a.npy", tmp_path / "staged")
    assert not check(tmp_path / "staged").damaged
    shard = tmp_path / "staged" / "a" / "image.zarr" / "c" / "0" / "0" / "0"
    content = bytearray(shard.read_bytes())
    content[1000] ^= 1
    shard.write_bytes(content)
    assert check(tmp_path / "staged").damaged == (str(shard),)


def test_a_volume_of_ignored_voxels_completes_the_labels(tmp_path: Path) -> None:
    image, labels = volume((40, 40, 40))
    for name, array in (("image", image), ("label", labels % 2), ("ignore", (labels == 2).astype(np.uint8))):
        (tmp_path / "source" / "a").mkdir(parents=True, exist_ok=True)
        np.save(tmp_path / "source" / "a" / f"{name}.npy", array)
    summary = staged(tmp_path / "source", tmp_path / "staged", VolumeOptions(patch=(32, 32, 32)))
    assert (summary.classes, summary.ignore) == ((0, 1), 255)
    found = voxels(tmp_path / "staged", "a/label.zarr")
    assert np.array_equal(found, np.where(labels == 2, 255, labels))


def test_a_full_disk_is_said_before_anything_is_written(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", volume((40, 40, 40))[0])
    with pytest.raises(DiskFull, match="more are needed"):
        staged(tmp_path / "a.npy", tmp_path / "staged", VolumeOptions(min_free=1 << 60))
    assert not (tmp_path / "staged" / "volumes.json").exists()


def test_the_list_of_a_staged_set_has_what_trainings_read(tmp_path: Path) -> None:
    image, labels = volume((40, 40, 40))
    write_slices(tmp_path / "source" / "images" / "s1", image)
    write_slices(tmp_path / "source" / "labels" / "s1", labels)
    staged(tmp_path / "source", tmp_path / "staged")
    found = json.loads((tmp_path / "staged" / "volumes.json").read_text())
    assert found["cases"] == [
        {
            "id": "s1",
            "image": "s1/image.zarr",
            "label": "s1/label.zarr",
            "shape": [40, 40, 40],
            "spacing": [1.0, 1.0, 1.0],
            "foreground": "s1/foreground.npy",
        }
    ]
    assert (found["classes"], found["ignore"]) == ([0, 1], 2)
    assert set(found["intensity"]) == {"mean", "std", "p0_5", "p99_5", "min", "max"}
