"""Makes a small data set of real photographs of ImageNet size, for the example training scripts.

A few hundred JPEGs of 500 x 375 pixels and about 110 KB, in one folder a class, ready for
``torchvision.datasets.ImageFolder``. Each is a random view (crop, mirror image, colour) of one of the
photographs that ship inside scikit-image; the photograph is the class. Nothing is downloaded.

    python examples/photographs.py --data ~/photographs
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import skimage.data
from PIL import Image, ImageEnhance, ImageOps

# The colour photographs in scikit-image's wheel; the others that it lists would have to be downloaded.
SOURCES = {
    "astronaut": "astronaut.png",
    "cat": "chelsea.png",
    "coffee": "coffee.png",
    "galaxies": "hubble_deep_field.jpg",
    "motorcycle": "motorcycle_left.png",
    "retina": "retina.jpg",
    "rocket": "rocket.jpg",
    "tissue": "ihc.png",
}
WIDTH, HEIGHT = 500, 375  # the usual size of a photograph in ImageNet
TRAIN_PER_CLASS, VAL_PER_CLASS = 80, 8
JPEG_END = b"\xff\xd9"
PARTIAL = ".partial"
ABANDONED_S = 600.0  # a partial file of this age belongs to a call that was killed


@dataclass(frozen=True)
class Photograph:
    """One file to make: the same seed gives the same pixels."""

    path: Path
    source: str
    seed: int


def default_folder() -> Path:
    """Return the cache folder that the photographs go to unless told otherwise."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "flatout" / "photographs"


def plan(folder: Path, train_per_class: int, val_per_class: int) -> Iterator[Photograph]:
    """Yield every photograph of the data set, made or not."""
    for split, count in (("train", train_per_class), ("val", val_per_class)):
        for name in SOURCES:
            for index in range(count):
                digest = hashlib.sha256(f"{split}/{name}/{index}".encode()).digest()
                seed = int.from_bytes(digest[:8], "big")
                yield Photograph(folder / split / name / f"{name}_{index:04d}.jpg", name, seed)


def is_complete(path: Path) -> bool:
    """Tell whether a file is there and was written to its end."""
    try:
        with path.open("rb") as file:
            file.seek(-len(JPEG_END), os.SEEK_END)
            return file.read() == JPEG_END
    except OSError:  # missing, or shorter than the end marker
        return False


def view(source: Image.Image, rng: random.Random) -> Image.Image:
    """Take a random view of a photograph: crop, mirror image, light and colour."""
    fit = min(source.width / WIDTH, source.height / HEIGHT)
    # At most 2.2 source pixels for one of ours: a crop of the larger sources still shows fine structure.
    scale = rng.uniform(0.7, 1.0) * min(fit, 2.2)
    width, height = scale * WIDTH, scale * HEIGHT
    left, top = rng.uniform(0, source.width - width), rng.uniform(0, source.height - height)
    image = source.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC, (left, top, left + width, top + height))
    if rng.random() < 0.5:
        image = ImageOps.mirror(image)
    for enhancer in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        image = enhancer(image).enhance(rng.uniform(0.8, 1.2))
    return image


def write(photograph: Photograph, source: Image.Image) -> None:
    """Write one JPEG (baseline, 4:2:0); a file of that name appears only when it is whole."""
    rng = random.Random(photograph.seed)
    partial = photograph.path.with_name(f".{photograph.path.name}.{os.getpid()}{PARTIAL}")
    try:
        # The sources are small and smooth: this quality gives the mean size of ImageNet's files, 110 KB.
        view(source, rng).save(partial, "JPEG", quality=rng.randint(98, 99), subsampling="4:2:0", progressive=False)
        partial.replace(photograph.path)
    finally:
        partial.unlink(missing_ok=True)


def remove_abandoned(folder: Path) -> None:
    """Remove what killed calls left; another call may be writing at this moment, so recent files stay."""
    for partial in folder.glob(f"*/*/.*{PARTIAL}"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - partial.stat().st_mtime > ABANDONED_S:
                partial.unlink()


def make(folder: Path, train_per_class: int = TRAIN_PER_CLASS, val_per_class: int = VAL_PER_CLASS) -> str:
    """Make the photographs that are missing or cut short and say in one line what was done.

    Args:
        folder: Where they go, as ``train/CLASS/*.jpg`` and ``val/CLASS/*.jpg``.
        train_per_class: Photographs of each of the classes to train on.
        val_per_class: Photographs of each class to validate on.

    Raises:
        OSError: The folder cannot be written.
    """
    started = time.monotonic()
    remove_abandoned(folder)
    photographs = list(plan(folder, train_per_class, val_per_class))
    missing = [photograph for photograph in photographs if not is_complete(photograph.path)]
    sources: dict[str, Image.Image] = {}
    for photograph in missing:
        if photograph.source not in sources:
            bundled = Path(skimage.data.__file__).parent / SOURCES[photograph.source]
            sources[photograph.source] = Image.open(bundled).convert("RGB")
        photograph.path.parent.mkdir(parents=True, exist_ok=True)
        write(photograph, sources[photograph.source])
    sizes = [photograph.path.stat().st_size for photograph in photographs]
    done = f"made {len(missing)} in {time.monotonic() - started:.0f} s" if missing else "already there"
    return (
        f"{len(photographs)} photographs in {len(SOURCES)} classes, {WIDTH} x {HEIGHT}, "
        f"{sum(sizes) / len(sizes) / 1000:.0f} KB on average: {done} ({folder})"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=default_folder(), help="folder to write to (%(default)s)")
    parser.add_argument(
        "--train", type=int, default=TRAIN_PER_CLASS, help="photographs a class to train on (%(default)s)"
    )
    parser.add_argument(
        "--val", type=int, default=VAL_PER_CLASS, help="photographs a class to validate on (%(default)s)"
    )
    options = parser.parse_args()
    try:
        print(make(options.data, options.train, options.val))
    except OSError as error:
        print(f"photographs: cannot write to {options.data}: {error.strerror or error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
