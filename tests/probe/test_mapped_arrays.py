"""Arrays that a data set reads whole become maps: the same values, fewer bytes read, and no file changes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.probe.test_injections import trained

SCRIPT = """
import hashlib, json, pathlib, sys
import h5py, numpy, tifffile, torch
from torch.utils.data import DataLoader, Dataset

folder, side = pathlib.Path(__file__).parent, 128
values = numpy.arange(32 * side * side, dtype=numpy.uint8).reshape(32, side, side)
wide = values.astype(numpy.float32)
numpy.save(folder / "a.npy", wide)
numpy.savez(folder / "bytes.npz", image=numpy.tile(values, (4, 1, 1)))
numpy.savez_compressed(folder / "packed.npz", image=numpy.tile(values, (4, 1, 1)))
tifffile.imwrite(folder / "a.tif", wide)
tifffile.imwrite(folder / "packed.tif", wide, compression="zlib")
torch.save({"image": torch.from_numpy(wide)}, folder / "a.pt")
with h5py.File(folder / "a.h5", "w") as file:
    file["image"] = wide
    file.create_dataset("chunked", data=wide, chunks=(1, side, side))
small = numpy.ones((4, 4), numpy.float32)
numpy.save(folder / "small.npy", small)


def h5(name):
    with h5py.File(folder / "a.h5", "r") as file:
        return file[name][:]


READERS = {
    "npy": lambda: numpy.load(folder / "a.npy"),
    "npy by name": lambda: numpy.load(str(folder / "a.npy"), allow_pickle=False),
    "npz": lambda: numpy.load(folder / "bytes.npz")["image"],
    "npz packed": lambda: numpy.load(folder / "packed.npz")["image"],
    "tif": lambda: tifffile.imread(folder / "a.tif"),
    "tif packed": lambda: tifffile.imread(folder / "packed.tif"),
    "pt": lambda: torch.load(folder / "a.pt")["image"].numpy(),
    "h5": lambda: h5("image"),
    "h5 in chunks": lambda: h5("chunked"),
    "small": lambda: numpy.load(folder / "small.npy"),
}


def read_bytes():
    return int(open("/proc/self/io").read().split()[1])


class Slices(Dataset):
    def __init__(self, name):
        self.name = name

    def __len__(self):
        return 4

    def __getitem__(self, index):
        begin = read_bytes()
        whole = READERS[self.name]()
        assert type(whole) is numpy.ndarray and whole.flags.writeable and whole.flags.aligned
        part = whole[index]
        part += 1  # a sample may change what it has read
        return torch.from_numpy(part.copy()), read_bytes() - begin


if __name__ == "__main__":
    seen = {}
    for name in READERS:
        for workers in (0, 1):
            batches = list(DataLoader(Slices(name), 2, num_workers=workers))
            digest = hashlib.sha256(b"".join(part.numpy().tobytes() for part, _ in batches)).hexdigest()
            # the least of the samples: imports are read too, by the first
            seen["%s, %d" % (name, workers)] = [digest, min(int(size.min()) for _, size in batches)]
    outside = numpy.load(folder / "a.npy")
    outside += 1
    numpy.save(folder / "a.npy", outside)  # a map of this file would be cut short here
    assert (numpy.load(folder / "a.npy") == wide + 1).all()
    numpy.save(folder / "a.npy", wide)
    print(json.dumps(seen))
"""
MAPPED = ("npy", "npy by name", "npz", "tif", "pt", "h5")
READ = ("npz packed", "tif packed", "h5 in chunks", "small")


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mapped") / "train.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.slow
def test_samples_are_the_same_and_only_what_they_use_is_read(script: Path) -> None:
    plain, _ = trained(script)
    files = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in script.parent.glob("a.*")}
    mapped, said = trained(script, mapped_arrays=True)
    assert "could not be set" not in said
    for name in (*MAPPED, *READ):
        for workers in (0, 1):
            (before, all_bytes), (after, bytes_) = plain[f"{name}, {workers}"], mapped[f"{name}, {workers}"]
            assert before == after, name
            assert bytes_ < all_bytes / 4 if name in MAPPED else bytes_ > all_bytes / 2, (name, workers, bytes_)
    same = [path for path in files if path.suffix in (".npy", ".tif")]  # the others hold the time of writing
    assert all(hashlib.sha256(path.read_bytes()).hexdigest() == files[path] for path in same)
