"""A training that segments volumes: one fit, or folds by volume; then its held-out volumes predicted whole."""

from __future__ import annotations

import hashlib
import json
import random
import statistics
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from flatout.atomic_file import write_atomically
from flatout.errors import UsageError
from flatout.recipes.checkpoints import kept_checkpoints
from flatout.recipes.deadline import Deadline
from flatout.recipes.fitting import fit
from flatout.recipes.folds import SPLIT_FILE
from flatout.recipes.interfaces import Fit, Policy
from flatout.recipes.ranks import this_process
from flatout.recipes.summary import Finished, read_summary, write_summary
from flatout.recipes.volume_data import VolumeData
from flatout.recipes.volume_schema import VolumeRecipe
from flatout.recipes.volume_scoring import score_volumes


def train_volumes(
    recipe: VolumeRecipe,
    data: VolumeData,
    folder: Path,
    *,
    deadline: Deadline | None,
    resume: bool,
    allowed: Collection[str],
    report: Callable[[str], None],
    show_progress: bool,
    before_training: Callable[[], None],
) -> Fit:
    """Train by a recipe, see :func:`flatout.recipes.training.train_recipe`.

    Raises:
        UsageError: the recipe cannot be run.
    """
    if recipe.training.early_stopping and not data.validation:
        raise UsageError("training.early_stopping: there are no validation volumes to score")

    def fit_one(part: VolumeData, where: Path, policies: list[Policy], again: bool) -> Fit:
        done = fit(
            recipe,
            part,
            where,
            policies=policies,
            resume=again,
            allowed=allowed,
            report=report,
            show_progress=show_progress,
            before_training=before_training,
        )
        if this_process().is_first and part.validation:
            began = time.monotonic()
            scored = score_volumes(recipe, part, done, report, deadline.left_s if deadline else None)
            if deadline is not None:
                deadline.measured_prediction(time.monotonic() - began)
            done = replace(done, metrics={**done.metrics, **scored})
        return done

    policies: list[Policy] = [deadline] if deadline else []
    if recipe.folds is None:
        return fit_one(data, folder, policies, resume)
    fits: list[Fit] = []
    folds = split_of(recipe, data, folder)
    for number, held in enumerate(folds):
        if deadline is not None and number and not deadline.room_for_a_fold():
            report(f"the deadline leaves no room for fold {number + 1}: {number} of {len(folds)} folds are trained")
            break
        report(f"fold {number + 1} of {len(folds)}: validates on {', '.join(held)}")
        where = folder / f"fold-{number}"
        if deadline is not None:
            deadline.fit_begins()
        begun = resume and bool(kept_checkpoints(where))
        ended = read_summary(where) if begun and not allowed else None
        part = data.split([name for name in (*data.train, *data.validation) if name not in held], held)
        done = fit_one(part, where, policies if ended is None else [Finished()], begun)
        if ended is not None:
            done = replace(done, stopped=ended["stopped"], notes=tuple(ended["notes"]))
        if this_process().is_first:
            write_summary(done)
        fits.append(done)
        if deadline is not None:
            deadline.fold_ended()
        metric = recipe.checkpoints.metric
        report(f"fold {number + 1}: {metric} {done.metrics.get(metric, float('nan')):.4f}")
    return _of_all(recipe.checkpoints.metric, fits, folder)


def _of_all(metric: str, fits: list[Fit], folder: Path) -> Fit:
    """The first fold's fit with mean and spread of all folds' scores in its metrics."""
    scores = [done.metrics[metric] for done in fits if metric in done.metrics]
    spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
    summary = {f"{metric} mean": statistics.fmean(scores), f"{metric} std": spread} if scores else {}
    each = {f"{metric} fold {number}": score for number, score in enumerate(scores)}
    return replace(fits[0], folder=folder, metrics={**summary, **each}, notes=tuple(n for f in fits for n in f.notes))


def split_of(recipe: VolumeRecipe, data: VolumeData, folder: Path) -> list[list[str]]:
    """The ids of the volumes that each fold holds out: a saved split, or a new one that is saved.

    Raises:
        UsageError: there are fewer volumes than folds, or the saved split is of others.
    """
    assert recipe.folds is not None
    names = sorted((*data.train, *data.validation))
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()
    path = Path(recipe.folds.file) if recipe.folds.file else folder / SPLIT_FILE
    if path.is_file():
        try:
            folds = [[str(name) for name in fold] for fold in json.loads(path.read_text("utf-8"))["folds"]]
        except (OSError, ValueError, KeyError, TypeError):
            raise UsageError(f"{path}: is no split that flatout wrote: remove it to draw a new one") from None
        if sorted(name for fold in folds for name in fold) != names:
            raise UsageError(f"{path}: a split of other volumes than the data has now: remove it to draw a new one")
        return folds
    if recipe.folds.file:
        raise UsageError(f"folds.file: {path}: no such file")
    if len(names) < recipe.folds.count:
        raise UsageError(f"folds.count: {recipe.folds.count} folds need as many volumes; there are {len(names)}")
    shuffled = random.Random(recipe.folds.seed).sample(names, len(names))
    folds = [sorted(shuffled[number :: recipe.folds.count]) for number in range(recipe.folds.count)]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps({"volumes": digest, "seed": recipe.folds.seed, "folds": folds}))
    return folds
