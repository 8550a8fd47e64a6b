"""Cross-validation: a seeded, stratified, saved split; the folds' scores; out-of-fold predictions."""

from __future__ import annotations

import hashlib
import json
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from flatout.errors import UsageError
from flatout.loader.contract import Source
from flatout.recipes.contract import Fit, ImageData, Policy
from flatout.recipes.deadline import Deadline
from flatout.recipes.first_submission import FirstSubmission
from flatout.recipes.fitting import fit
from flatout.recipes.schema import Recipe

SPLIT_FILE = "folds.json"
OUT_OF_FOLD_FILE = "out_of_fold.csv"


def stratified_folds(labels: Sequence[int], count: int, seed: int) -> list[list[int]]:
    """Places of each fold, sorted: of every class, images shuffled by ``random.Random(seed)`` are dealt out in turn.

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
            f"folds.count: {count} folds need {count} images of each class, {len(small)} class(es) have fewer"
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
        saved = json.loads(path.read_text("utf-8"))
        if saved.get("images") != digest:
            raise UsageError(f"{path}: a split of other images than the data has now: remove it to draw a new one")
        return [list(fold) for fold in saved["folds"]]
    if recipe.folds.file:
        raise UsageError(f"folds.file: {path}: no such file")
    labels = [data.train.samples[index].label for index in data.train_indices]
    folds = stratified_folds(labels, recipe.folds.count, recipe.folds.seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"images": digest, "seed": recipe.folds.seed, "folds": folds}), "utf-8")
    return folds


def train_folds(
    recipe: Recipe,
    data: ImageData,
    folder: Path,
    *,
    deadline: Deadline | None = None,
    test: Source | None = None,
    resume: bool = False,
    report: Callable[[str], None] = print,
    show_progress: bool = True,
) -> Fit:
    """Train the folds one after another; with a deadline as many as fit, and a submission of ``test`` after each.

    Returns:
        The first fold's fit with the mean and the spread of all folds' scores in its metrics.
    """
    from flatout.recipes.predicting import submit

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
        begun = resume and (where / "last.ckpt").is_file()
        done = fit(recipe, part, where, policies=policies, resume=begun, report=report, show_progress=show_progress)
        fits.append(done)
        began = time.monotonic()
        rows += _out_of_fold(part, where)
        _write_out_of_fold(folder, data.classes, rows)
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


def _out_of_fold(part: ImageData, where: Path) -> list[tuple[str, int, np.ndarray]]:
    from flatout.recipes.predicting import find_trained, predict

    held = _Part(part)
    probabilities = predict(find_trained(where), held)
    return [(sample.key, sample.label, row) for sample, row in zip(held.samples, probabilities, strict=True)]


class _Part:
    """The held-out images as a source of their own."""

    def __init__(self, data: ImageData) -> None:
        assert data.validation is not None
        self.only_threads = data.validation.only_threads
        self._source, self._indices = data.validation, list(data.validation_indices)
        self.samples = [self._source.samples[index] for index in self._indices]
        self.classes = data.classes

    def read(self, index: int) -> bytes:
        """The encoded bytes of an image."""
        return self._source.read(self._indices[index])

    def locate(self, index: int) -> str:
        """Where it lies."""
        return self._source.locate(self._indices[index])


def _write_out_of_fold(folder: Path, classes: Sequence[str], rows: Sequence[tuple[str, int, np.ndarray]]) -> None:
    from flatout.recipes.bookkeeping import write_csv

    table = [[key, classes[label], *(f"{value:.8f}" for value in row)] for key, label, row in sorted(rows, key=_key)]
    write_csv(folder / OUT_OF_FOLD_FILE, ["id", "label", *classes], table)


def _key(row: tuple[str, int, np.ndarray]) -> str:
    return row[0]
