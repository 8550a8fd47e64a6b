"""Probabilities of images by trained checkpoints, and the submission table."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from flatout.atomic_file import write_atomically
from flatout.errors import UsageError
from flatout.formats.class_list import CLASSES_FILE
from flatout.formats.training_folder import SUBMISSION_FILE
from flatout.loader.batch_builder import Bad
from flatout.loader.image_loader import ImageLoader
from flatout.loader.interfaces import Source
from flatout.recipes.checkpoints import LAST, kept_checkpoints, read_checkpoint
from flatout.recipes.data_config import resolve_images
from flatout.recipes.datasets import below, load_classes, open_test
from flatout.recipes.models import build_model, without_weights
from flatout.recipes.objective import make_finish
from flatout.recipes.reading import FILE_NAME, read_any_recipe, read_recipe
from flatout.recipes.schema import Recipe
from flatout.terminal_text import one_line
from flatout.units import counted

Probabilities = NDArray[np.float64]
DECIMALS = 8


@dataclass(frozen=True)
class Trained:
    """A checkpoint with the recipe and class names stored next to it."""

    checkpoint: Path
    recipe: Recipe
    classes: tuple[str, ...]


def find_trained(run: Path) -> list[Trained]:
    """The checkpoints of a run folder (the best of each fold), or one checkpoint.

    Raises:
        UsageError: there is no checkpoint, or its recipe or class names are missing.
    """
    trained = []
    for path in find_checkpoints(run):
        recipe = read_recipe(str(path.parent / FILE_NAME))
        trained.append(Trained(path, recipe, load_classes(path.parent / CLASSES_FILE)))
    if len({one.classes for one in trained}) > 1:
        raise UsageError(f"{run}: its folds have different classes")
    return trained


def find_checkpoints(run: Path) -> list[Path]:
    """The checkpoints of a run folder (the best of each fold), or one checkpoint, with a recipe beside each.

    Raises:
        UsageError: there is none, or its recipe is missing.
    """
    if run.is_file():
        found = [run]
    else:
        folders = [run, *sorted(run.glob("fold-*"))]
        found = [path for folder in folders if (path := _best_in(folder)) is not None]
    if not found:
        raise UsageError(f"{run}: no checkpoint there: give a folder that `flatout train` wrote, or a .ckpt file")
    for path in found:
        if not (path.parent / FILE_NAME).is_file():
            raise UsageError(f"{path}: {FILE_NAME} is missing beside it: it says which model this is")
    return found


def _best_in(folder: Path) -> Path | None:
    """The checkpoint with the best score of a folder; the last where nothing was scored."""
    metrics = folder / "metrics.csv"
    best = [path for path in kept_checkpoints(folder) if path.name != LAST]
    if best and metrics.is_file():
        from flatout.recipes.early_stopping import better

        metric = read_any_recipe(str(folder / FILE_NAME)).checkpoints.metric
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
    last = folder / LAST
    return best[0] if best else last if last.is_file() else None


@dataclass(frozen=True)
class Predictions:
    """Predicted classes of a set of images."""

    probabilities: Probabilities  # float64 (images, classes), in the order of the source; rows sum to 1
    bad: tuple[Bad, ...]  # images that could not be decoded: each class is equally probable in their rows


def predict(
    trained: Sequence[Trained],
    source: Source,
    *,
    batch_size: int | None = None,
    skip_bad: bool | None = None,
    mirrored: bool = False,
) -> Predictions:
    """Mean of the checkpoints' probabilities.

    Args:
        trained: the checkpoints.
        source: the images.
        batch_size: images at once; None: as in the training.
        skip_bad: give images that cannot be decoded equal probabilities; None: as the recipe's ``data.bad_files`` says.
        mirrored: take the mean of each image and its mirror image.

    Raises:
        UsageError: the checkpoint is of another model than the recipe next to it.
        UnreadableImage: an image cannot be decoded and is not to be skipped.
    """
    total: Probabilities | None = None
    bad: dict[str, Bad] = {}
    for one in trained:
        skips = one.recipe.data.bad_files == "skip" if skip_bad is None else skip_bad
        made = _predict_one(one, source, batch_size or one.recipe.training.batch_size, skips, mirrored)
        total = made.probabilities if total is None else total + made.probabilities
        bad.update((image.where, image) for image in made.bad)
    assert total is not None
    return Predictions(total / len(trained), tuple(bad.values()))


def _predict_one(one: Trained, source: Source, batch_size: int, skip_bad: bool, mirrored: bool) -> Predictions:
    recipe, _ = resolve_images(one.recipe)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = build_model(without_weights(recipe), len(one.classes))
    checkpoint = read_checkpoint(one.checkpoint)
    origin = checkpoint.get("flatout")
    if isinstance(origin, dict) and tuple(origin.get("classes", one.classes)) != one.classes:
        raise UsageError(f"{one.checkpoint}: was trained on other classes than {CLASSES_FILE} beside it names")
    saved = checkpoint["state_dict"]
    try:
        model.load_state_dict({key[6:]: value for key, value in saved.items() if key.startswith("model.")})
    except RuntimeError as error:
        first = str(error).strip().splitlines()[0]
        raise UsageError(f"{one.checkpoint}: no checkpoint of {recipe.model.name}: {first}") from None
    model = model.to(device).eval()
    images = recipe.images
    assert images.size is not None and images.validation_crop is not None
    finish = make_finish(recipe, len(one.classes))
    rows: list[torch.Tensor] = []
    delivered: list[torch.Tensor] = []
    loader = ImageLoader(
        source,
        range(len(source.samples)),
        size=images.size,
        batch_size=batch_size,
        training=False,
        validation_crop=images.validation_crop,
        squash=images.crop_mode == "squash",
        interpolation=images.interpolation or "bilinear",
        decoder=images.decoder,
        scaled_decode=images.scaled_decode,
        backend="threads",
        workers=images.workers,
        bad_files="skip" if skip_bad else "error",
    )
    with loader, torch.inference_mode():
        for batch in loader:
            pixels, _ = finish(batch.to(device), 0, training=False)
            made = model(pixels).float().softmax(1)
            if mirrored:
                made = (made + model(pixels.flip(3)).float().softmax(1)) / 2
            rows.append(made.cpu())
            delivered.append(batch.indices.cpu())
    found: Probabilities = torch.cat(rows).double().numpy()
    # A replacement for an undecodable image tells nothing about that image.
    found[torch.cat(delivered).numpy() != np.arange(len(found))] = 1.0
    return Predictions(np.asarray(found / found.sum(1, keepdims=True), np.float64), tuple(loader.bad))


def find_test(recipe: Recipe) -> Source | None:
    """The images to predict of a recipe; None if it names none.

    Raises:
        UsageError: they are named but do not exist.
    """
    if recipe.data.root is None or recipe.data.test is None:
        return None
    return open_test(below(recipe.data.root, recipe.data.test), recipe.data.image_column)


def submit(folder: Path, test: Source, report: Callable[[str], None]) -> float:
    """Predict with the best checkpoints so far of a training, and write its submission.

    Returns:
        Seconds that it took.
    """
    began = time.monotonic()
    trained = find_trained(folder)
    path = folder / SUBMISSION_FILE
    made = predict(trained, test)
    write_submission(path, test, trained[0].classes, made.probabilities, trained[0].recipe.data.id_column)
    report(f"{path}: {len(test.samples):,} images predicted by {counted(len(trained), 'model')}{said_of_bad(made.bad)}")
    return time.monotonic() - began


def said_of_bad(bad: Sequence[Bad]) -> str:
    """The end of a line about images that could not be decoded; empty if there are none."""
    if not bad:
        return ""
    return (
        f"; {len(bad)} could not be decoded and have equal probabilities, such as "
        f"{one_line(bad[0].where)} ({one_line(bad[0].reason)})"
    )


def ids_of(source: Source) -> list[str]:
    """Names of images in tables.

    File names without extension; if two would be equal, paths without extension; if those are equal, whole paths.
    """
    keys = [sample.key for sample in source.samples]
    paths = [_without_extension(key) for key in keys]
    names = [path.rpartition("/")[2] for path in paths]
    return next(ids for ids in (names, paths, keys) if len(set(ids)) == len(ids) or ids is keys)


def _without_extension(key: str) -> str:
    folder, slash, name = key.rpartition("/")
    return f"{folder}{slash}{name.rpartition('.')[0] or name}"


def write_submission(
    path: Path, source: Source, classes: Sequence[str], probabilities: Probabilities, id_column: str = "id"
) -> None:
    """Write a CSV: the images' ids (:func:`ids_of`), then one column a class; rows sum to 1 as written.

    The file is replaced atomically.

    Raises:
        UsageError: it cannot be written.
    """
    rounded = np.round(probabilities, DECIMALS)
    # The rounding error is added to the largest, which it changes least.
    rounded[np.arange(len(rounded)), rounded.argmax(1)] += 1 - rounded.sum(1)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([id_column, *classes])
    for name, row in zip(ids_of(source), rounded, strict=True):
        writer.writerow([name, *(f"{value:.{DECIMALS}f}" for value in row)])
    try:
        write_atomically(path, text.getvalue().encode(errors="surrogateescape"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
