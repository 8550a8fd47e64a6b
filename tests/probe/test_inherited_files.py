"""Files that a data set keeps open, read by workers that flatout adds: each has a position of its own in them."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from flatout.probe.injections.inherited_files import reopen_inherited
from tests.probe.test_injections import trained

SCRIPT = """
import hashlib, json, pathlib, tarfile, zipfile
import h5py, numpy, torch
from torch.utils.data import DataLoader, Dataset

folder, count = pathlib.Path(__file__).parent, 400


def content(index):
    return hashlib.sha256(b"%d" % index).digest() * 64


class Plain(Dataset):
    def __init__(self):
        (folder / "all.bin").write_bytes(b"".join(map(content, range(count))))
        self.file = open(folder / "all.bin", "rb", buffering=0)

    def __getitem__(self, index):
        self.file.seek(2048 * index)
        return self.file.read(1024) + self.file.read(1024)


class Zip(Dataset):
    def __init__(self):
        with zipfile.ZipFile(folder / "all.zip", "w") as archive:
            for index in range(count):
                archive.writestr(str(index), content(index))
        self.archive = zipfile.ZipFile(folder / "all.zip")

    def __getitem__(self, index):
        return self.archive.read(str(index))


class Tar(Dataset):
    def __init__(self):
        for index in range(count):
            (folder / str(index)).write_bytes(content(index))
        with tarfile.open(folder / "all.tar", "w") as archive:
            for index in range(count):
                archive.add(folder / str(index), str(index))
        self.archive = tarfile.open(folder / "all.tar")
        self.members = self.archive.getmembers()

    def __getitem__(self, index):
        return self.archive.extractfile(self.members[index]).read()


class Hdf5(Dataset):
    def __init__(self):
        with h5py.File(folder / "all.h5", "w") as file:
            file["rows"] = numpy.stack([numpy.frombuffer(content(index), "B") for index in range(count)])
        self.file = h5py.File(folder / "all.h5", "r")

    def __getitem__(self, index):
        return self.file["rows"][index].tobytes()


if __name__ == "__main__":
    wrong = {}
    for kind in (Plain, Zip, Tar, Hdf5):
        kind.__len__ = lambda self: count
        loader = DataLoader(kind(), 5, shuffle=True, collate_fn=list)
        loader.generator = torch.Generator().manual_seed(0)
        for _ in range(3):
            got = [one for batch in loader for one in batch]
        wrong[kind.__name__] = sorted(got) != sorted(map(content, range(count)))
    print(json.dumps({"wrong": wrong, "workers": loader.num_workers}))
"""


@pytest.mark.slow
def test_added_workers_read_what_the_training_process_read(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    seen, said = trained(script, num_workers=3)
    assert seen == {"wrong": dict.fromkeys(("Plain", "Zip", "Tar", "Hdf5"), False), "workers": 3}, said


def test_a_forked_process_gets_a_position_of_its_own_and_keeps_the_rest(tmp_path: Path) -> None:
    (tmp_path / "read").write_bytes(bytes(range(100)))
    with open(tmp_path / "read", "rb", buffering=0) as read, open(tmp_path / "written", "wb", buffering=0) as written:
        read.seek(10)
        os.set_inheritable(read.fileno(), True)
        (tmp_path / "read").unlink()  # a file without a name
        child = os.fork()
        if not child:
            reopen_inherited()
            same = read.tell() == 10 and os.get_inheritable(read.fileno()) and read.read(5) == bytes(range(10, 15))
            written.write(b"by the child")
            os._exit(0 if same else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert read.tell() == 10 and written.tell() == len(b"by the child")


def test_descriptors_do_not_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "read").write_bytes(b"x" * 100)
    with open(tmp_path / "read", "rb") as read:
        before = set(os.listdir("/proc/self/fd"))
        reopen_inherited()
        assert set(os.listdir("/proc/self/fd")) == before
        assert fcntl.fcntl(read.fileno(), fcntl.F_GETFD) & fcntl.FD_CLOEXEC

        def refused(*_: Any) -> int:
            raise PermissionError

        monkeypatch.setattr(os, "open", refused)
        reopen_inherited()
        assert read.read() == b"x" * 100
