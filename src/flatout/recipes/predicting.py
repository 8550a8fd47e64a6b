"""Probabilities of images by trained checkpoints, and the table that is handed in."""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from flatout.errors import UsageError
from flatout.loader.contract import Source
from flatout.loader.finish import Finish
from flatout.loader.image_loader import ImageLoader
from flatout.recipes.datasets import CLASSES_FILE, below, load_classes, open_test
from flatout.recipes.models import build_model
from flatout.recipes.reading import FILE_NAME, read_recipe
from flatout.recipes.schema import Recipe

Probabilities = NDArray[np.float64]
DECIMALS = 8
SUBMISSION_FILE = "submission.csv"


@dataclass(frozen=True)
class Trained:
    """A checkpoint with what it needs: the recipe and the class names beside it."""

    checkpoint: Path
    recipe: Recipe
    classes: tuple[str, ...]


def find_trained(run: Path) -> list[Trained]:
    """The checkpoints of a run folder (the best of each fold), or one checkpoint.

    Raises:
        UsageError: there is none, or what belongs to it is missing.
    """
    if run.is_file():
        found = [run]
    else:
        folders = [run, *sorted(run.glob("fold-*"))]
        found = [path for folder in folders if (path := _best_in(folder)) is not None]
    if not found:
        raise UsageError(f"{run}: no checkpoint there: give a folder that `flatout train` wrote, or a .ckpt file")
    trained = []
    for path in found:
        if not (path.parent / FILE_NAME).is_file():
            raise UsageError(f"{path}: {FILE_NAME} is missing beside it: it says which model this is")
        recipe = read_recipe(str(path.parent / FILE_NAME))
        trained.append(Trained(path, recipe, load_classes(path.parent / CLASSES_FILE)))
    if len({one.classes for one in trained}) > 1:
        raise UsageError(f"{run}: its folds have different classes")
    return trained


def _best_in(folder: Path) -> Path | None:
    """The checkpoint with the best score of a folder; the last where nothing was scored."""
    metrics = folder / "metrics.csv"
    best = list(folder.glob("best-*.ckpt"))
    if best and metrics.is_file():
        from flatout.recipes.early_stopping import better

        metric = read_recipe(str(folder / FILE_NAME)).checkpoints.metric
        with metrics.open(newline="") as file:
            scores = {int(row["epoch"]): float(row[metric]) for row in csv.DictReader(file) if row.get(metric)}
        ranked: Path | None = None
        top: float | None = None
        for path in sorted(best):
            score = scores.get(int(path.stem.rpartition("-")[2]))
            if score is not None and (top is None or better(metric, score, top)):
                ranked, top = path, score
        if ranked is not None:
            return ranked
    last = folder / "last.ckpt"
    return best[0] if best else last if last.is_file() else None


def predict(trained: Sequence[Trained], source: Source, *, batch_size: int | None = None) -> Probabilities:
    """Mean of the checkpoints' probabilities, float64 (images, classes), in the order of the source; rows sum to 1.

    Raises:
        UsageError: a checkpoint of another model than the recipe beside it says.
    """
    total: Probabilities | None = None
    for one in trained:
        made = _predict_one(one, source, batch_size or one.recipe.training.batch_size)
        total = made if total is None else total + made
    assert total is not None
    mean: Probabilities = total / len(trained)
    return mean


def _predict_one(one: Trained, source: Source, batch_size: int) -> Probabilities:
    recipe = one.recipe
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    plain = recipe.model_copy(update={"model": recipe.model.model_copy(update={"weights": "random"})})
    model = build_model(plain, len(one.classes))
    try:
        saved: Any = torch.load(one.checkpoint, map_location="cpu", weights_only=True)["state_dict"]
        model.load_state_dict({key[6:]: value for key, value in saved.items() if key.startswith("model.")})
    except (RuntimeError, KeyError, OSError, EOFError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UsageError(f"{one.checkpoint}: no checkpoint of {recipe.model.name}: {first}") from None
    model = model.to(device).eval()
    images = recipe.images
    finish = Finish(images.mean, images.std, len(one.classes), channels_last=recipe.training.channels_last)
    rows: list[torch.Tensor] = []
    loader = ImageLoader(
        source,
        range(len(source.samples)),
        size=images.size,
        batch_size=batch_size,
        training=False,
        validation_crop=images.validation_crop,
        decoder=images.decoder,
        backend="threads",
        workers=images.workers,
    )
    with loader, torch.inference_mode():
        for batch in loader:
            pixels, _ = finish(batch.to(device), 0, training=False)
            rows.append(model(pixels).float().softmax(1).cpu())
    made = torch.cat(rows).double().numpy()
    return np.asarray(made / made.sum(1, keepdims=True), np.float64)


def find_test(recipe: Recipe) -> Source | None:
    """The images to predict of a recipe; None where it names none.

    Raises:
        UsageError: they are named and not there.
    """
    if recipe.data.root is None or recipe.data.test is None:
        return None
    return open_test(below(recipe.data.root, recipe.data.test))


def submit(folder: Path, test: Source, report: Callable[[str], None]) -> float:
    """Predict with the best checkpoints of a training so far and write its submission.

    Returns:
        Seconds that it took.
    """
    began = time.monotonic()
    trained = find_trained(folder)
    path = folder / SUBMISSION_FILE
    write_submission(path, test, trained[0].classes, predict(trained, test))
    report(f"{path}: {len(test.samples):,} images predicted by {len(trained)} model(s)")
    return time.monotonic() - began


def write_submission(path: Path, source: Source, classes: Sequence[str], probabilities: Probabilities) -> None:
    """Write a CSV: ``id`` (file name without extension), then one column a class; rows sum to 1 as written.

    The file is replaced at once: there is always a whole one.
    """
    rounded = np.round(probabilities, DECIMALS)
    # What rounding took goes to the largest, which it changes least.
    rounded[np.arange(len(rounded)), rounded.argmax(1)] += 1 - rounded.sum(1)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["id", *classes])
            for sample, row in zip(source.samples, rounded, strict=True):
                name = sample.key.rpartition("/")[2]
                writer.writerow([name.rpartition(".")[0] or name, *(f"{value:.{DECIMALS}f}" for value in row)])
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UsageError(f"{path}: {error.strerror or error}") from None
