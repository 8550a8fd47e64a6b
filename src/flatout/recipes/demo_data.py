"""Data for the demo recipe: crops of the photographs that ship with scikit-image, one class a photograph."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from flatout.errors import UsageError
from flatout.recipes.any_recipe import AnyRecipe

PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "rocket", "brick", "grass", "gravel", "coins")
TRAIN, VALIDATION = 80, 24  # crops of each
SIDES = (56, 110)  # pixels of a crop, drawn
KEPT_SIDE = 96


def demo_data_folder() -> Path:
    """The folder of the demo's data, in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flatout" / "demo-classes"


def needs_demo_data(name: str, recipe: AnyRecipe) -> bool:
    """True for the demo recipe if the user names no data of his own.

    Args:
        name: as the user named the recipe.
        recipe: that was read by this name.
    """
    return recipe.data.root is None and name == "demo"


def make_demo_data(folder: Path) -> Path:
    """Write train/<class>/*.jpg and val/<class>/*.jpg below ``folder``, once.

    Training crops come from the upper 62% of a photograph, validation crops from the lower 38%: no pixel is in both.

    Raises:
        UsageError: scikit-image is not installed.
    """
    if folder.is_dir():
        return folder
    try:
        import skimage.data
    except ModuleNotFoundError:
        raise UsageError(
            "the demo's photographs ship with scikit-image: pip install scikit-image, or give --data"
        ) from None
    from PIL import Image

    partial = folder.with_name(folder.name + f".{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    draw = random.Random(0)
    for name in PHOTOGRAPHS:
        image = Image.fromarray(getattr(skimage.data, name)()).convert("RGB")
        border = round(0.62 * image.height)
        for split, top, bottom, count in (("train", 0, border, TRAIN), ("val", border, image.height, VALIDATION)):
            into = partial / split / name
            into.mkdir(parents=True)
            for number in range(count):
                side = min(draw.randint(*SIDES), bottom - top)
                left, upper = draw.randint(0, image.width - side), draw.randint(top, bottom - side)
                crop = image.crop((left, upper, left + side, upper + side)).resize((KEPT_SIDE, KEPT_SIDE))
                crop.save(into / f"{number:03}.jpg", quality=92)
    os.replace(partial, folder)
    return folder
