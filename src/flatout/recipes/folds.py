"""Cross-validation: a seeded, stratified, saved split; the folds' scores; out-of-fold predictions."""

from __future__ import annotations

import hashlib
import json
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from flatout.atomic_file import write_atomically
from flatout.errors import UsageError
from flatout.loader.interfaces import Source
from flatout.recipes.checkpoints import kept_checkpoints
from flatout.recipes.deadline import Deadline
from flatout.recipes.first_submission import FirstSubmission
from flatout.recipes.fitting import fit
from flatout.recipes.interfaces import Fit, ImageData, Policy
from flatout.recipes.schema import Recipe
from flatout.recipes.summary import Finished, read_summary, write_summary

SPLIT_FILE = "folds.json"
OUT_OF_FOLD_FILE = "out_of_fold.csv"


def stratified_folds(labels: Sequence[int], count: int, seed: int) -> list[list[int]]:
    """Indices of each fold, sorted: of every class, images shuffled by ``random.Random(seed)`` are dealt in turn.

    Each class starts dealing where the one before it stopped, so folds differ by one image at most.

    Raises:
        UsageError: a class has fewer images than there are folds.
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for place, label in enumerate(labels):
        groups[label].append(place)
    small = [label for label, places in groups.items() if len(places) < count]
    if small:
        raise UsageError(
            f"folds.count: {count} folds need {count} images of each class; "
            f"{len(small)} of {len(groups)} classes have fewer"
        )
    draw = random.Random(seed)
    folds: list[list[int]] = [[] for _ in range(count)]
    turn = 0
    for label in sorted(groups):
        places = groups[label]
        draw.shuffle(places)
        for place in places:
            folds[turn % count].append(place)
            turn += 1
    return [sorted(fold) for fold in folds]


def split_of(recipe: Recipe, data: ImageData, folder: Path) -> list[list[int]]:
    """The split of a run: the saved one, or a new one that is saved.

    Raises:
        UsageError: the saved split is of other images.
    """
    assert recipe.folds is not None
    keys = [data.train.samples[index].key for index in data.train_indices]
    digest = hashlib.sha256("\n".join(keys).encode()).hexdigest()
    path = Path(recipe.folds.file) if recipe.folds.file else folder / SPLIT_FILE
    if path.is_file():
        return _saved_split(path, digest, len(keys))
    if recipe.folds.file:
        raise UsageError(f"folds.file: {path}: no such file")
    labels = [data.train.samples[index].label for index in data.train_indices]
    folds = stratified_folds(labels, recipe.folds.count, recipe.folds.seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps({"images": digest, "seed": recipe.folds.seed, "folds": folds}))
    return folds


def _saved_split(path: Path, digest: str, images: int) -> list[list[int]]:
    try:
        saved = json.loads(path.read_text("utf-8"))
        folds = [[int(place) for place in fold] for fold in saved["folds"]]
        whole = sorted(place for fold in folds for place in fold) == list(range(images))
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(f"{path}: is no split that flatout wrote: remove it to draw a new one") from None
    if saved.get("images") != digest or not whole:
        raise UsageError(f"{path}: a split of other images than the data has now: remove it to draw a new one")
    return folds


def train_folds(
    recipe: Recipe,
    data: ImageData,
    folder: Path,
    *,
    deadline: Deadline | None = None,
    test: Source | None = None,
    resume: bool = False,
    allowed: Collection[str] = (),
    report: Callable[[str], None] = print,
    show_progress: bool = True,
    before_training: Callable[[], None] = lambda: None,
) -> Fit:
    """Train the folds one after another; with a deadline as many as fit, and a submission of ``test`` after each.

    Returns:
        The first fold's fit with the mean and the spread of all folds' scores in its metrics.
    """
    from flatout.recipes.predicting import said_of_bad, submit

    folds = split_of(recipe, data, folder)
    metric = recipe.checkpoints.metric
    fits: list[Fit] = []
    rows: list[tuple[str, int, np.ndarray]] = []
    for number, held in enumerate(folds):
        if deadline is not None and number and not deadline.room_for_a_fold():
            report(f"the deadline leaves no room for fold {number + 1}: {number} of {len(folds)} folds are trained")
            break
        own = set(held)
        part = replace(
            data,
            train_indices=[index for place, index in enumerate(data.train_indices) if place not in own],
            validation=data.train,
            validation_indices=[data.train_indices[place] for place in held],
        )
        report(f"fold {number + 1} of {len(folds)}")
        where = folder / f"fold-{number}"
        if deadline is not None:
            deadline.fit_begins()
        policies: list[Policy] = [deadline] if deadline else []
        if test is not None and deadline is not None and not number:
            policies.append(FirstSubmission(folder, test, deadline, report))
        ended = None
        begun = resume and bool(kept_checkpoints(where))
        if begun and not allowed and (ended := read_summary(where)) is not None:
            policies = [Finished()]
        done = fit(
            recipe,
            part,
            where,
            policies=policies,
            resume=begun,
            allowed=allowed,
            report=report,
            show_progress=show_progress,
            before_training=before_training,
        )
        if ended is not None:
            done = replace(done, stopped=ended["stopped"], notes=tuple(ended["notes"]))
        write_summary(done)
        fits.append(done)
        began = time.monotonic()
        held_out, bad = _out_of_fold(part, where)
        rows += held_out
        if bad:
            report(f"fold {number + 1}: out-of-fold predictions{said_of_bad(bad)}")
        _write_out_of_fold(folder, recipe, data, rows)
        if test is not None:
            submit(folder, test, report)
        if deadline is not None:
            deadline.measured_prediction(time.monotonic() - began)
            deadline.fold_ended()
        report(f"fold {number + 1}: {metric} {done.metrics.get(metric, float('nan')):.4f}")
    scores = [done.metrics[metric] for done in fits if metric in done.metrics]
    spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
    summary = {f"{metric} mean": statistics.fmean(scores), f"{metric} std": spread} if scores else {}
    each = {f"{metric} fold {number}": score for number, score in enumerate(scores)}
    return replace(fits[0], folder=folder, metrics={**summary, **each}, notes=tuple(n for f in fits for n in f.notes))


def _out_of_fold(part: ImageData, where: Path) -> tuple[list[tuple[str, int, np.ndarray]], Sequence[Any]]:
    """Key, label and probabilities of the images that were held out; and those that could not be decoded."""
    from flatout.recipes.predicting import find_trained, predict

    held = _Part(part)
    made = predict(find_trained(where), held)
    rows = zip(held.samples, made.probabilities, strict=True)
    return [(sample.key, sample.label, row) for sample, row in rows], made.bad


class _Part:
    """The held-out images as a separate source."""

    def __init__(self, data: ImageData) -> None:
        assert data.validation is not None
        self.only_threads = data.validation.only_threads
        self._source, self._indices = data.validation, list(data.validation_indices)
        self.samples = [self._source.samples[index] for index in self._indices]
        self.classes = data.classes

    def read(self, index: int) -> bytes:
        """The encoded bytes of an image."""
        return self._source.read(self._indices[index])

    # untested: only for an image that cannot be read in a held-out fold
    def locate(self, index: int) -> str:
        """Path or address of an image."""
        return self._source.locate(self._indices[index])


def _write_out_of_fold(
    folder: Path, recipe: Recipe, data: ImageData, rows: Sequence[tuple[str, int, np.ndarray]]
) -> None:
    from flatout.recipes.metric_files import write_csv
    from flatout.recipes.predicting import ids_of

    name = dict(zip((sample.key for sample in data.train.samples), ids_of(data.train), strict=True))
    table = [
        [name[key], data.classes[label], *(f"{value:.8f}" for value in row)]
        for key, label, row in sorted(rows, key=_key)
    ]
    write_csv(folder / OUT_OF_FOLD_FILE, [recipe.data.id_column, recipe.data.label_column, *data.classes], table)


def _key(row: tuple[str, int, np.ndarray]) -> str:
    return row[0]
