"""A training that takes a second: small photographs, a model of timm's own tests."""

from __future__ import annotations

import csv
from pathlib import Path

from flatout.recipes.data_config import resolve_images
from flatout.recipes.reading import read_recipe
from flatout.recipes.schema import Recipe

TINY = [
    "model.name=test_resnet",
    "images.size=32",
    "images.workers=1",
    "training.batch_size=16",
    "training.epochs=2",
    "schedule.warmup_epochs=0.5",
]


def recipe(photographs: Path, *more: str) -> Recipe:
    return resolve_images(read_recipe("demo", [*TINY, f"data.root={photographs}", *more]))[0]


def losses(folder: Path) -> list[float]:
    with (folder / "steps.csv").open(newline="") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


def quiet(line: str) -> None:
    pass
