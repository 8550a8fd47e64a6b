"""A whole training by a recipe: one fit, or folds, inside a deadline or without one."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path

from flatout.errors import UsageError
from flatout.formats.training_folder import DEADLINE_FILE
from flatout.recipes.data_config import resolve_images
from flatout.recipes.deadline import Deadline
from flatout.recipes.first_submission import FirstSubmission
from flatout.recipes.fitting import fit
from flatout.recipes.interfaces import Fit, ImageData, Policy
from flatout.recipes.output_folder import remove_unfinished
from flatout.recipes.predicting import find_test, submit
from flatout.recipes.ranks import this_process
from flatout.recipes.schema import Recipe
from flatout.units import parse_duration


def train_recipe(
    recipe: Recipe,
    data: ImageData,
    folder: Path,
    *,
    resume: bool = False,
    allowed: Collection[str] = (),
    report: Callable[[str], None] = print,
    show_progress: bool = True,
    before_training: Callable[[], None] = lambda: None,
    began: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Fit:
    """Train by a recipe.

    Args:
        recipe: of the training.
        data: the images.
        folder: for all output.
        resume: continue from the last checkpoint.
        allowed: keys that may differ from the recipe that the checkpoint was trained by; ``data``: the images.
        report: called with each progress message.
        show_progress: a moving line on standard error.
        before_training: called when there is something to train, perhaps several times.
        began: start of a deadline's time; None: now.
        clock: seconds.

    Raises:
        UsageError: the recipe cannot be run.
    """
    recipe, line = resolve_images(recipe)
    for said in (line, *data.notes):
        if said:
            report(said)
    if this_process().is_first:
        remove_unfinished(folder)
    deadline = None
    if recipe.training.max_time is not None:
        limit = parse_duration(recipe.training.max_time, option="training.max_time")
        folds = recipe.folds.count if recipe.folds else 1
        folder.mkdir(parents=True, exist_ok=True)
        deadline = Deadline(
            limit,
            epochs=recipe.training.epochs,
            folds=folds,
            began=began,
            clock=clock,
            report=report,
            file=folder / DEADLINE_FILE,
            resume=resume,
        )
    test = find_test(recipe)
    if recipe.folds is not None:
        if data.validation is not None:
            report(
                f"data.validation: {recipe.data.validation} is not used, since folds hold out parts of the training "
                "images: set it to null to say so"
            )
        from flatout.recipes.folds import train_folds

        return train_folds(
            recipe,
            data,
            folder,
            deadline=deadline,
            test=test,
            resume=resume,
            allowed=allowed,
            report=report,
            show_progress=show_progress,
            before_training=before_training,
        )
    if data.validation is None and recipe.training.early_stopping:
        raise UsageError("training.early_stopping: there is no validation data to score")
    policies: list[Policy] = [deadline] if deadline else []
    if deadline and test:
        policies.append(FirstSubmission(folder, test, deadline, report))
    done = fit(
        recipe,
        data,
        folder,
        policies=policies,
        resume=resume,
        allowed=allowed,
        report=report,
        show_progress=show_progress,
        before_training=before_training,
    )
    if test and this_process().is_first:
        submit(folder, test, report)
    return done
