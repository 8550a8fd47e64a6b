"""Pictures that are kept as their pipeline begins to change them: the same samples, without decoding and resizing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flatout.runner.command import injecting_environment

SCRIPT = """
import copy, hashlib, io, json, os, pickle, random, sys
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFile, ImageFilter
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as v1
from torchvision.transforms import v2

COUNT = 40
NAMES = ["%d.%s" % (number, "png" if number % 4 == 3 else "jpg") for number in range(COUNT)]
FIRST = v1.Compose([v1.Resize(32), v1.CenterCrop(24), v1.RandomHorizontalFlip(), v1.ToTensor()])
SECOND = v2.Compose([v2.Resize(20, antialias=True), v2.RandomCrop(16), v2.ToImage()])
PADDED = v1.Compose([v1.Pad(3), v1.Grayscale(3), v1.ToTensor()])
GROWING = v1.Compose([v1.Resize(16), v1.ToTensor()])
RANDOM = v1.Compose([v1.RandomResizedCrop(24), v1.Resize(20), v1.ToTensor()])

HOOKED = v2.Compose([v2.Resize(18, antialias=True), v2.ToImage()])
passes = [0]

def by_file(name):
    with open(name, "rb") as file:
        return Image.open(file).convert("RGB")

def by_path(name):
    with Image.open(name) as picture:
        return picture.convert("RGB")

def from_memory(name):
    with io.BytesIO(open(name, "rb").read()) as file:
        return Image.open(file).convert("L")

def marked(name):
    picture = by_file(name)
    ImageDraw.Draw(picture).rectangle((5, 5, 40, 40), fill=(random.randrange(256), 0, 0))
    return picture

def pasted(name):
    picture = by_path(name)
    picture.paste((random.randrange(256), 9, 9), (0, 0, 30, 30))
    return picture

def first_looked_at(name):
    picture = by_file(name)
    assert np.asarray(picture).shape == (picture.height, picture.width, 3)
    return picture.filter(ImageFilter.BLUR) if random.random() < 0.5 else picture

def pickled(name):
    picture = by_path(name)
    return pickle.loads(pickle.dumps(copy.copy(picture))) if name.startswith("2") else copy.deepcopy(picture)

def by_pixels(name):
    picture = by_path(name)
    pixels = picture.load()
    SECOND(picture)
    if passes[0] > 1:
        pixels[3, 3] = (random.randrange(256), 1, 2)
        pixels[40, 30] = (random.randrange(256), 1, 2)
    return picture

def drafted(name):
    picture = Image.open(name)
    if name.endswith("jpg") and passes[0] % 2:
        picture.draft("RGB", (10, 10))
    return picture

def closed(name):
    picture = Image.open(name) if name.startswith("1") else by_path(name)
    if name.startswith("2") or passes[0] < 3:
        return picture
    picture.close()
    return picture

def untouched(name):
    return Image.open(name) if name.endswith("jpg") else by_file(name)

KINDS = {
    "file": (by_file, FIRST), "path": (by_path, SECOND), "memory": (from_memory, FIRST), "drawn": (marked, FIRST),
    "pasted": (pasted, SECOND), "looked at": (first_looked_at, FIRST), "untouched": (untouched, SECOND),
    "padded": (by_file, PADDED), "growing": (by_file, GROWING), "random": (by_file, RANDOM),
    "pixels": (by_pixels, FIRST), "drafted": (drafted, GROWING),
    "closed": (closed, SECOND), "hooked": (by_file, HOOKED),
    "pickled": (pickled, FIRST),
}

class Pictures(Dataset):
    def __init__(self, kind):
        self.open, self.transform = KINDS[kind]

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        random.seed(index)
        torch.manual_seed(index)
        if index == 0:
            passes[0] += 1
        try:
            picture = self.open(NAMES[index])
            return self.hashed(picture)
        except Exception as error:
            return "%s: %s" % (type(error).__name__, error)

    def hashed(self, picture):
        size, mode, info = picture.size, picture.mode, dict(picture.info)
        made = self.transform(picture)
        text = repr((size, mode, info, made.shape, made.dtype, picture.size, picture.tobytes()[:90]))
        return hashlib.sha1(text.encode() + made.contiguous().numpy().tobytes()).hexdigest()

def resizes(pictures):
    calls = [0]
    real = Image.Image.resize
    def counted(self, *args, **kwargs):
        calls[0] += 1
        return real(self, *args, **kwargs)
    Image.Image.resize = counted
    found = [pictures[index] for index in range(COUNT)]
    Image.Image.resize = real
    return found, calls[0]

def main():
    rng = np.random.default_rng(0)
    for number, name in enumerate(NAMES):
        values = rng.integers(0, 256, (8 + number % 3, 9, 3), dtype=np.uint8).repeat(9, 0).repeat(9, 1)
        Image.fromarray(values).convert("L" if number % 5 == 4 else "RGB").save(name)
    seen, calls = {}, {}
    for kind in KINDS:
        pictures = Pictures(kind)
        passes[0] = 0
        own = [[pictures[index] for index in range(COUNT)] for _ in range(3)]
        if kind == "hooked":
            HOOKED.transforms[0].register_forward_pre_hook(lambda part, given: (given[0].rotate(90),))
            own += [[pictures[index] for index in range(COUNT)] for _ in range(3)]
        if kind == "growing":
            GROWING.transforms[0].size = 40
            own += [[pictures[index] for index in range(COUNT)] for _ in range(3)]
        own += [list(DataLoader(pictures, batch_size=None, num_workers=2)) for _ in range(2)]
        found, calls[kind] = resizes(pictures)
        seen[kind] = [*own, found]
    open("7.png", "wb").write(open("3.png", "rb").read())  # another picture, of the same name
    seen["changed"] = Pictures("path")[7]
    open("1.jpg", "ab").close()
    with open("1.jpg", "r+b") as file:
        file.truncate(300)
    seen["broken"] = []
    for allowed in (False, True, True, False):
        ImageFile.LOAD_TRUNCATED_IMAGES = allowed
        seen["broken"].append(Pictures("path")[1])
    print(json.dumps([seen, calls, len(os.listdir("/proc/self/fd"))]))

if __name__ == "__main__":
    main()
"""


def made(folder: Path, settings: dict[str, Any]) -> Any:
    folder.mkdir()
    script = folder / "train.py"
    script.write_text(SCRIPT)
    environment = injecting_environment() | {"FLATOUT_SETTINGS": json.dumps(settings)}
    done = subprocess.run([sys.executable, script], env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and "could not be set" not in done.stderr, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_samples_are_the_same_and_pictures_are_resized_once(tmp_path: Path) -> None:
    plain, calls, files = made(tmp_path / "plain", {})
    kept, kept_calls, kept_files = made(tmp_path / "kept", {"sample_cache_bytes": 100_000_000})
    for name, found in plain.items():
        assert kept[name] == found, name
    once = ("file", "path", "memory", "untouched", "growing")
    assert {name: count for name, count in kept_calls.items() if name in once} == dict.fromkeys(once, 0)
    assert all(calls[name] == 40 for name in once) and kept_calls["drawn"] == kept_calls["pasted"] == 40
    assert kept_files - files <= 2  # the memory, and the end of its listing
