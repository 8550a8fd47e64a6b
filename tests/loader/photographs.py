"""Small class folders of real photographs, which ship with scikit-image."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
from PIL import Image
from skimage import data

PICTURES = ("astronaut", "chelsea", "coffee", "rocket")


def picture(name: str) -> Image.Image:
    """A photograph, RGB."""
    return Image.fromarray(np.asarray(getattr(data, name)())).convert("RGB")


def make_class_folders(root: Path, classes: int = 4, per_class: int = 6, side: int = 96, seed: int = 0) -> Path:
    """Write root/train/<class>/*.jpg and root/val/<class>/*.jpg: each class crops of one photograph.

    Training looks at the left half of the photograph, validation at the right one.
    """
    draw = random.Random(seed)
    for number in range(classes):
        image = picture(PICTURES[number % len(PICTURES)])
        half = image.size[0] // 2
        for split, left, count in (("train", 0, per_class), ("val", half, max(2, per_class // 3))):
            folder = root / split / f"{PICTURES[number % len(PICTURES)]}{number}"
            folder.mkdir(parents=True, exist_ok=True)
            for place in range(count):
                x, y = left + draw.randint(0, half - side), draw.randint(0, image.size[1] - side)
                width, height = side + draw.randint(0, 8), side
                part = image.crop((x, y, x + side, y + side)).resize((width, height))
                part.save(folder / f"{place:03}.jpg", quality=90)
    return root
