"""Decoded pictures that the workers of an unchanged training share."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flatout.probe import sample_memory
from flatout.probe.contract import SAMPLES_VARIABLE
from flatout.probe.sample_memory import CHECKED, SampleMemory
from flatout.runner.command import injecting_environment

PICTURES = """
import hashlib, io, json, sys
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

KINDS = [("rgb.jpg", "RGB", {}), ("gray.jpg", "L", {}), ("rgba.png", "RGBA", {}), ("palette.png", "P", {}),
         ("dots.bmp", "RGB", {}), ("deep.png", "I;16", {})]

class Pictures(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        if index >= 12:
            raise IndexError(index)
        name, mode, _ = KINDS[index % len(KINDS)]
        if index < 6:
            with open(name, "rb") as file:
                picture = Image.open(file)
                made = picture.convert("RGB") if mode in ("L", "P") else picture.copy()
        else:
            picture = Image.open(io.BytesIO(open(name, "rb").read()))
            if index == 6:
                picture.draft(None, (20, 20))
            made = picture.rotate(90)
        made.putpixel((0, 0), 0)  # a later pass does not see it
        state = sorted(key for key in vars(picture) if not key.startswith("_flatout"))
        text = repr((made.mode, made.size, made.tobytes(), picture.info, state, picture.fp is None, picture.readonly))
        return hashlib.sha1(text.encode()).hexdigest()

def main():
    values = np.random.default_rng(0).integers(0, 256, (60, 80, 4), dtype=np.uint8)
    for name, mode, options in KINDS:
        if mode == "I;16":
            Image.fromarray(values[:, :, 0].astype(np.uint16)).save(name)
        else:
            Image.fromarray(values).convert(mode).save(name, **options)
    loader = DataLoader(Pictures(), batch_size=None, num_workers=2)
    pictures = Pictures()
    print(json.dumps([*([one for one in pictures] for _ in range(8)), list(loader)]))

if __name__ == "__main__":
    main()
"""


ARRAYS = """
import hashlib, json, os, sys, types
import numpy as np

reads = []
cv2 = types.ModuleType("cv2")  # a stand-in: a function of C that makes an array of a path, or of bytes
def imread(path, flags=1):
    reads.append(path)
    return np.load(path) if os.path.exists(path) else None
cv2.imread = imread
cv2.imdecode = lambda data, flags=1: np.frombuffer(data, np.uint8)[-200 * 300 :].reshape(200, 300) + np.uint8(flags)
folder = os.path.abspath("modules")
os.makedirs(folder, exist_ok=True)
open(folder + "/cv2.py", "w").write("import numpy\\nimread = imdecode = None\\n")
sys.path.insert(0, folder)
sys.modules["_cv2"] = cv2
open(folder + "/cv2.py", "w").write("import sys\\nfrom _cv2 import imread, imdecode\\n")
import cv2
import h5py, nibabel, tifffile, torch, torchvision
from torch.utils.data import DataLoader, Dataset

def described(found):
    if isinstance(found, torch.Tensor):
        text = repr((str(found.dtype), tuple(found.shape), found.stride(), found.numpy().tobytes()))
        found.fill_(0)  # a later pass does not see it
    elif isinstance(found, np.ndarray):
        text = repr((found.dtype.str, found.shape, found.strides, found.flags.writeable, found.tobytes()))
        found[...] = 0
    else:
        text = repr(found)
    return hashlib.sha1(text.encode()).hexdigest()

def raw(name):
    return open(name, "rb").read()

def failing(name):
    try:
        np.load(name)["missing"]
    except KeyError as error:
        return str(error)

def stored(name, part):
    with h5py.File("set.h5", "r") as file:
        return file[name][part]

CALLS = [
    lambda: np.load("set.npz")["a"], lambda: np.load("set.npz")["b"], lambda: np.load("set.npz")["small"],
    lambda: np.load("set.npz")["fortran"], lambda: np.load("set.npz")["text"], lambda: failing("set.npz"),
    lambda: np.load(open("set.npz", "rb"))["a"],
    lambda: tifffile.imread("stack.tif"), lambda: tifffile.imread("stack.tif", key=1),
    lambda: tifffile.imread("stack.tif", key=slice(0, 2)),
    lambda: np.asanyarray(nibabel.load("brain.nii.gz").dataobj), lambda: nibabel.load("brain.nii.gz").get_fdata(),
    lambda: np.asarray(nibabel.load("brain.nii").dataobj),
    lambda: stored("packed", slice(None)), lambda: stored("packed", 1), lambda: stored("packed", ()),
    lambda: stored("packed", (Ellipsis, slice(0, 100, 2))), lambda: stored("other", slice(None)),
    lambda: stored("packed", np.array([0, 2])), lambda: stored("packed", (0, 0, 0)),
    lambda: stored("plain", slice(None)),
    lambda: torchvision.io.read_image("photo.png"),
    lambda: torchvision.io.decode_image(torch.frombuffer(bytearray(raw("photo.png")), dtype=torch.uint8)),
    lambda: torchvision.io.decode_image("photo.png", mode="GRAY"),
    lambda: cv2.imread("picture.npy"), lambda: cv2.imread("picture.npy", 0), lambda: cv2.imread("none.npy"),
    lambda: cv2.imdecode(raw("picture.npy")), lambda: cv2.imdecode(np.frombuffer(raw("picture.npy"), np.uint8), 2),
]

class Arrays(Dataset):
    def __len__(self):
        return len(CALLS)

    def __getitem__(self, index):
        return described(CALLS[index]())

def main():
    rng = np.random.default_rng(0)
    volume = rng.integers(0, 4000, (3, 160, 200)).astype(np.uint16)
    np.savez_compressed("set.npz", a=volume, b=volume[0], small=np.arange(9), fortran=np.asfortranarray(volume + 1),
                        text=np.array(["x"] * 20000))
    with h5py.File("set.h5", "w") as file:
        file.create_dataset("packed", data=volume, chunks=(1, 160, 200), compression="gzip")
        file.create_dataset("other", data=volume + 5, chunks=(1, 160, 200), compression="lzf")
        file["plain"] = volume
    tifffile.imwrite("stack.tif", volume, compression="zlib", photometric="minisblack")
    for name in ("brain.nii", "brain.nii.gz"):
        nibabel.save(nibabel.Nifti1Image(volume, np.eye(4)), name)
    torchvision.io.write_png(torch.from_numpy(volume[:, :, :].astype(np.uint8)), "photo.png")
    np.save("picture.npy", volume[0].astype(np.uint8)[:, :].repeat(2, 0)[:200].repeat(2, 1)[:, :300])
    arrays = Arrays()
    seen = [[arrays[index] for index in range(len(arrays))] for _ in range(6)]
    seen.append(list(DataLoader(arrays, batch_size=None, num_workers=2)))
    before = len(reads)
    seen.append([arrays[index] for index in range(len(arrays))])
    # Changed in place, with the same size.
    np.save("picture.npy", np.full((200, 300), 7, np.uint8))
    seen.append(described(cv2.imread("picture.npy")))
    print(json.dumps([seen, len(reads) - before]))

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
def test_arrays_are_unpacked_once_and_every_caller_gets_its_own(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(ARRAYS)
    seen = []
    for settings in ({}, {"sample_cache_bytes": 100_000_000}):
        environment = injecting_environment() | {"FLATOUT_SETTINGS": json.dumps(settings)}
        command = [sys.executable, str(script)]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0 and "could not be set" not in done.stderr, done.stderr
        seen.append(json.loads(done.stdout))
    assert seen[0][0] == seen[1][0]
    assert (seen[0][1], seen[1][1]) == (4, 2)  # the missing file, and the one that changed


@pytest.mark.slow
def test_every_pass_has_the_samples_of_a_training_that_decodes(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PICTURES)
    seen = []
    for settings in ({}, {"sample_cache_bytes": 10_000_000}):
        environment = injecting_environment() | {"FLATOUT_SETTINGS": json.dumps(settings)}
        command = [sys.executable, str(script)]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0 and "could not be set" not in done.stderr, done.stderr
        seen.append(json.loads(done.stdout))
    assert seen[0] == seen[1]


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> SampleMemory:
    monkeypatch.setenv(SAMPLES_VARIABLE, "")
    return SampleMemory(100_000)


def key(number: int) -> bytes:
    return number.to_bytes(sample_memory.KEY_BYTES, "little")


def test_samples_are_found_until_the_room_is_full_and_never_replaced(memory: SampleMemory) -> None:
    assert memory.find(key(1)) is None
    assert [memory.keep(key(number), bytes([number]) * 30_000) for number in range(5)] == [True] * 3 + [False] * 2
    assert not memory.keep(key(1), b"other")
    assert memory.keep(key(7), b"small enough") and memory.entries == 4
    assert [bytes(memory.find(key(number)) or b"")[:1] for number in range(4)] == [b"\0", b"\1", b"\2", b""]
    colliding = key(1 + (1 << 64))
    assert memory.find(colliding) is None and memory.keep(colliding, b"x") and bytes(memory.find(colliding)) == b"x"


def test_another_process_finds_them_and_a_killed_one_blocks_nobody(memory: SampleMemory) -> None:
    memory.keep(key(1), b"of the parent")
    child = os.fork()
    if not child:
        joined = SampleMemory(5)  # by the environment variable, as a spawned worker does
        joined.keep(key(2), b"of the child" if bytes(joined.find(key(1)) or b"") == b"of the parent" else b"")
        with joined._alone(2):  # killed while it holds the lock
            time.sleep(30)
    while memory.find(key(2)) is None and os.waitpid(child, os.WNOHANG) == (0, 0):
        time.sleep(0.005)
        if memory.entries == 2:
            break
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert bytes(memory.find(key(2)) or b"") == b"of the child"


def test_nothing_is_relied_on_before_some_agreed_or_after_one_did_not(memory: SampleMemory) -> None:
    memory.keep(key(1), b"stored")
    for _ in range(CHECKED):
        assert memory.unchecked()
        memory.compared(True)
    assert not memory.unchecked() and memory.find(key(1)) is not None
    memory.compared(False)
    assert memory.find(key(1)) is None and not memory.keep(key(2), b"more")


def test_no_sample_is_stored_where_memory_runs_out(memory: SampleMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_memory.memory_room, "available_bytes", lambda: 1 << 20)
    assert not memory.keep(key(1), b"stored") and memory.find(key(1)) is None


def test_a_place_that_is_not_this_memory_is_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("1", "x:y:z", "999999999:3:00", f"{os.getpid()}:0:0011223344556677"):
        monkeypatch.setenv(SAMPLES_VARIABLE, place)
        assert SampleMemory(1000).entries == 0


IMPORTED_BEFORE = """
import tifffile
from tifffile import imread
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

tifffile.imwrite("scene.tif", np.arange(40_000, dtype=np.uint16).reshape(200, 200))

class Patches(Dataset):
    def __len__(self):
        return 80

    def __getitem__(self, index):
        read = (imread, tifffile.imread)[index % 2]
        return torch.from_numpy(read("scene.tif")[:8, :8].astype(np.float32))

weights = torch.ones(1, requires_grad=True)
for batch in DataLoader(Patches(), 8):
    (batch.sum() * weights).sum().backward()
kept = [type(imread).__name__, type(tifffile.imread).__name__]
print(weights.grad.item(), kept)
"""


@pytest.mark.slow
def test_readers_that_were_imported_before_torch_are_answered_too(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(IMPORTED_BEFORE)
    environment = injecting_environment() | {"FLATOUT_SETTINGS": json.dumps({"sample_cache_bytes": 1 << 24})}
    words = [sys.executable, "train.py"]
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    plain = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == plain.stdout.split()[0]
    assert "Unbound', 'Unbound'" in done.stdout and "had no effect" not in done.stderr
