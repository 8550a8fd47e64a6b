"""A data set may write the files that it reads: what was mapped shows what was read, and no file is cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probe.test_injections import trained

SCRIPT = """
import hashlib, json, os, pathlib, sys
import h5py, numpy, tifffile, torch
from torch.utils.data import DataLoader, Dataset

folder = pathlib.Path(__file__).parent
values = numpy.arange(512 * 1024, dtype=numpy.float32).reshape(512, 1024)


def back(kind, path):
    if kind == "npy":
        array = numpy.load(path)
        array[:2] += 1
        numpy.save(path, array)
    elif kind == "npy later":
        array = numpy.load(path)
        numpy.save(path, array * 0.5)
    elif kind == "pt":
        array = torch.load(path)
        array[:2] += 1
        torch.save(array, path)
        array = array.numpy()
    elif kind == "tif":
        array = tifffile.imread(path)
        array[:2] += 1
        tifffile.imwrite(path, array)
    elif kind == "h5":
        with h5py.File(path, "r") as file:
            array = file["x"][()]
        with h5py.File(path, "w") as file:
            file["x"] = array + 1
    elif kind == "cut":
        array = numpy.load(path)
        os.truncate(path, 4096)
    elif kind == "from file":
        array = numpy.load(path)
        with open(path, "r+b") as file:
            file.truncate(100)
    return array


def write(kind, path):
    if kind == "pt":
        torch.save(torch.from_numpy(values), path)
    elif kind == "tif":
        tifffile.imwrite(path, values)
    elif kind == "h5":
        with h5py.File(path, "w") as file:
            file["x"] = values
    else:
        numpy.save(path, values)


class Rewritten(Dataset):
    def __init__(self, kind, path):
        self.kind, self.path = kind, path

    def __len__(self):
        return 2

    def __getitem__(self, index):
        if self.kind in ("cut", "from file"):
            write(self.kind, self.path)
        return back(self.kind, self.path).copy()


class Kept(Dataset):
    def __init__(self, path):
        self.path, self.kept = path, None

    def __len__(self):
        return 2

    def __getitem__(self, index):
        if self.kept is None:
            self.kept = numpy.load(self.path)
        return self.kept[index].copy()


def digest(array):
    return hashlib.sha256(array.tobytes()).hexdigest()[:16]


if __name__ == "__main__":
    seen = {}
    for kind in ("npy", "npy later", "pt", "tif", "h5", "cut", "from file"):
        path = str(folder / kind.replace(" ", "_"))
        if kind == "npy later" or kind in ("npy", "cut", "from file"):
            path += ".npy"
        write(kind, path)
        for workers in (0, 1):
            batches = [digest(batch.numpy()) for batch in DataLoader(Rewritten(kind, path), 1, num_workers=workers)]
            seen["%s, %d" % (kind, workers)] = [batches, os.path.getsize(path)]
    path = str(folder / "kept.npy")
    numpy.save(path, values)
    kept = Kept(path)
    loader = DataLoader(kept, 1)
    first = [digest(batch.numpy()) for batch in loader]
    numpy.save(path, values * 2)  # between two passes
    with open(path, "r+b") as file:
        file.truncate(100)
    seen["kept"] = [first, [digest(batch.numpy()) for batch in loader]]
    whole = next(iter(DataLoader(Rewritten("npy", str(folder / "npy.npy")), None)))
    os.truncate(folder / "npy.npy", 200)
    seen["without batches"] = digest(whole.numpy())
    print(json.dumps(seen))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("without_coverage")
def test_a_data_set_that_writes_what_it_reads_trains_as_without_maps(tmp_path: Path) -> None:
    seen = []
    for number, settings in enumerate(({}, {"mapped_arrays": True})):
        folder = tmp_path / str(number)
        folder.mkdir()
        script = folder / "rewriting.py"
        script.write_text(SCRIPT)
        found, said = trained(script, **settings)
        assert "could not be set" not in said
        seen.append(found)
    assert seen[1] == seen[0]
