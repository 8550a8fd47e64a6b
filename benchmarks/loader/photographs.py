"""The data sets of the comparison: crops of the photographs that ship with scikit-image, as JPEGs."""

from __future__ import annotations

import random
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from skimage import data

PICTURES = ("astronaut", "chelsea", "coffee", "rocket")


@dataclass(frozen=True)
class ImageSet:
    """One data set.

    Attributes:
        name: Its folder.
        about: For the reader.
        width: Of each image, pixels.
        height: Of each image, pixels.
        quality: JPEG qualities that are drawn from; 4:2:0, baseline.
        count: Images.
    """

    name: str
    about: str
    width: int
    height: int
    quality: tuple[int, ...]
    count: int


SETS = {
    one.name: one
    for one in (
        ImageSet("ordinary", "500 x 375", 500, 375, (95, 96, 97, 98), 400),
        ImageSet("pre-resized", "short side 256", 341, 256, (88, 90, 92), 400),
        ImageSet("large", "2000 x 1500", 2000, 1500, (85, 88, 90), 40),
    )
}


def make(wanted: ImageSet, folder: Path) -> Path:
    """Write folder/<name>/images/*.jpg and the same images in tar shards, once."""
    root = folder / wanted.name
    images = root / "images"
    if (root / "done").exists():
        return root
    images.mkdir(parents=True, exist_ok=True)
    draw = random.Random(wanted.name)
    pictures = [Image.fromarray(np.asarray(getattr(data, name)())).convert("RGB") for name in PICTURES]
    for number in range(wanted.count):
        picture = pictures[number % len(pictures)]
        scale = min(picture.width / wanted.width, picture.height / wanted.height) * draw.uniform(0.7, 1.0)
        width, height = int(wanted.width * scale), int(wanted.height * scale)
        left, top = draw.randint(0, picture.width - width), draw.randint(0, picture.height - height)
        part = picture.crop((left, top, left + width, top + height)).resize((wanted.width, wanted.height))
        # Enlarged photographs are smooth and would decode too fast: the grain of a sensor is put back.
        grain = np.random.default_rng(number).normal(0, 4, (wanted.height, wanted.width, 3))
        pixels = (np.asarray(part) + grain).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(images / f"{number:05}.jpg", quality=draw.choice(wanted.quality), subsampling=2)
    files = sorted(images.iterdir())
    (root / "shards").mkdir(exist_ok=True)
    for shard in range(4):
        with tarfile.open(root / "shards" / f"{shard}.tar", "w") as tar:
            for path in files[shard::4]:
                tar.add(path, path.name)
    (root / "done").touch()
    return root


def mean_bytes(root: Path) -> float:
    """Mean size of a JPEG."""
    sizes = [path.stat().st_size for path in (root / "images").iterdir()]
    return sum(sizes) / len(sizes)
