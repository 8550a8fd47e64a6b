"""Resume from an intact checkpoint of the same recipe and the same data."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flatout.errors import DamagedCheckpoint, UsageError
from flatout.recipes.any_recipe import AnyRecipe
from flatout.recipes.checkpoints import LAST, kept_checkpoints, read_checkpoint
from flatout.recipes.interfaces import EpochRecord, TrainingData
from flatout.recipes.reading import FILE_NAME
from flatout.units import counted

# These do not change the result. The data are compared by names and labels.
FREE = ("about", "data.", "logging.", "checkpoints.keep", "checkpoints.every_steps", "images.workers", "images.backend",
        "images.prefetch_batches", "patches.workers", "patches.prefetch_batches", "patches.overlap",
        "training.max_time", "training.oom_fallback", "training.validation_batch_size", "model.weights",
        "model.head_")  # fmt: skip
# The checkpoint holds tensors of these shapes and meanings.
FIXED = ("task", "model.name", "model.in_chans", "network.kind", "network.features", "network.blocks",
         "optimizer.name", "optimizer.momentum", "optimizer.nesterov", "optimizer.betas", "optimizer.eps",
         "optimizer.weight_decay", "optimizer.layer_decay", "optimizer.options", "model.options", "folds")  # fmt: skip


@dataclass(frozen=True)
class Start:
    """The point at which a fit resumes."""

    checkpoint: Path
    records: tuple[EpochRecord, ...]  # its finished epochs
    batch_size: int  # smaller than the recipe's after running out of memory
    changed: tuple[str, ...]  # keys that were allowed to differ


def origin_of(recipe: AnyRecipe, data: TrainingData) -> dict[str, Any]:
    """Origin of a checkpoint, as plain values."""
    return {
        "recipe": recipe.model_dump(mode="json"),
        "classes": list(data.classes),
        "images": data.digest(),
        "batch_size": recipe.training.batch_size,
    }


def find_start(
    folder: Path,
    recipe: AnyRecipe,
    data: TrainingData,
    allowed: Collection[str],
    report: Callable[[str], None],
    smaller_batch: int | None = None,
) -> Start | None:
    """The checkpoint to resume from: the last intact one.

    Args:
        folder: of the fit.
        recipe: the current one.
        data: the current images or volumes.
        allowed: keys that may differ from the recipe that the checkpoint was trained by.
        report: told which checkpoint is used.
        smaller_batch: batch size to resume with after running out of memory; None: the checkpoint's.

    Returns:
        None to begin anew: none was written yet, or none can be resumed with a smaller batch.

    Raises:
        UsageError: no intact checkpoint, or it is of another recipe or of other data.
    """
    found = kept_checkpoints(folder)
    if not found and smaller_batch is None and (folder / FILE_NAME).is_file():
        report(f"{folder}: was stopped before its first checkpoint: begins anew")
        return None
    if not found:
        raise UsageError(f"--resume: {folder / LAST}: no such checkpoint: start without --resume")
    damaged: list[str] = []
    for path in found:
        try:
            checkpoint = read_checkpoint(path)
        except DamagedCheckpoint as error:
            damaged.append(str(error))
            continue
        origin = checkpoint.get("flatout", {})
        if smaller_batch is not None and origin.get("inside_epoch") and origin.get("batch_size") != smaller_batch:
            continue  # the rest of the epoch is counted in batches
        start = _checked(path, checkpoint, recipe, data, allowed)
        epochs = f"{counted(len(start.records), 'epoch')} trained"
        inside = ", and a part of the next" if origin.get("inside_epoch") else ""
        report(f"{f'{damaged[0]}: ' if damaged else ''}resumes from {path}: {epochs}{inside}")
        return start if smaller_batch is None else replace(start, batch_size=smaller_batch)
    if smaller_batch is not None:
        return None
    raise UsageError(f"--resume: {damaged[0]}, and no other is whole: start anew with another --output")


def _checked(path: Path, checkpoint: Any, recipe: AnyRecipe, data: TrainingData, allowed: Collection[str]) -> Start:
    origin = checkpoint.get("flatout")
    if not isinstance(origin, dict):
        raise UsageError(f"--resume: {path}: was not written by flatout train")
    different = differing(_with_defaults(origin["recipe"], recipe), recipe.model_dump(mode="json"))
    different = {key: values for key, values in different.items() if not key.startswith(FREE)}
    fixed = {key: values for key, values in different.items() if key.startswith(FIXED)}
    if fixed:
        raise UsageError(f"--resume: {path}: {_said(fixed)}: this cannot change: train into another --output")
    if tuple(origin["classes"]) != data.classes:
        raise UsageError(f"--resume: {path}: a checkpoint of other classes than the data has now")
    refused = {key: values for key, values in different.items() if key not in allowed}
    if refused:
        options = " ".join(f"--allow-change {key}" for key in refused)
        raise UsageError(f"--resume: {path}: {_said(refused)}: give what it was trained by, or allow it: {options}")
    if origin["images"] != data.digest() and "data" not in allowed:
        raise UsageError(
            f"--resume: {path}: trained on other {data.things} than the data has now ({data.counts}): "
            "give the same --data, or allow it: --allow-change data"
        )
    moved = {"training.batch_size", "training.accumulate"} & different.keys() or origin["images"] != data.digest()
    if origin["inside_epoch"] and moved:
        raise UsageError(
            f"--resume: {path}: lies inside an epoch, whose batches would be others now: "
            "give what it was trained by until the epoch ends"
        )
    same_batch = "training.batch_size" not in different
    records = checkpoint["callbacks"]["FitHistory"]["records"]
    return Start(
        path,
        tuple(EpochRecord(**record) for record in records),
        origin["batch_size"] if same_batch else recipe.training.batch_size,
        tuple(different),
    )


def _with_defaults(before: Any, recipe: AnyRecipe) -> Any:
    """An earlier recipe with the defaults of keys that are newer than it; as it is if it is no such recipe."""
    try:
        return type(recipe).model_validate(before).model_dump(mode="json")
    except ValidationError:
        return before


def differing(before: Any, now: Any, key: str = "") -> dict[str, tuple[Any, Any]]:
    """Dotted key -> its two values, of the keys that differ between two recipes; a section that is null is one key."""
    if before == now:
        return {}
    if not (isinstance(before, dict) and isinstance(now, dict)) or key in ("optimizer.options", "model.options"):
        return {key: (before, now)}
    inner = {**before, **now}
    return {
        full: values
        for name in inner
        for full, values in differing(before.get(name), now.get(name), f"{key}.{name}" if key else name).items()
    }


def _said(different: dict[str, tuple[Any, Any]]) -> str:
    return "differs: " + ", ".join(
        f"{key} was {json.dumps(before)} and is {json.dumps(now)} now" for key, (before, now) in different.items()
    )
