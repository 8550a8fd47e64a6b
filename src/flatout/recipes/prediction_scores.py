"""Scores of predicted volumes against the labels that were staged with them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import torch

from flatout.atomic_file import write_atomically
from flatout.errors import UsageError
from flatout.recipes.class_scores import ClassScore, Scored
from flatout.recipes.volume_data import IGNORE
from flatout.recipes.volume_scoring import SCORES_FILE
from flatout.segmentation.dice import dice_scores, overlap_counts
from flatout.segmentation.surfaces import SurfaceScore, lacking, surface_scores
from flatout.volumes import open_volume
from flatout.volumes.staged import StagedCase, StagedSet

_PLANES = 64  # compared at once


def score_predictions(staged: StagedSet, predictions: Path, classes: tuple[str, ...], run: Path) -> Scored:
    """Score each volume that has labels; writes ``scores.json`` beside the predictions.

    Args:
        staged: volumes with their labels.
        predictions: folder of ID.zarr, class indices.
        classes: names of the classes that the network knows, by index: values of the labels.
        run: folder of the training: what it scored itself was held out.

    Raises:
        UsageError: no volume has labels.
    """
    labelled = [case for case in staged.cases if case.label is not None]
    if not labelled:
        raise UsageError(f"{staged.folder}: no volume has labels to score by: give --data with labels, or no --score")
    held_out = _held_out(run)
    values = np.full(256, IGNORE, np.uint8)
    for index, name in enumerate(classes):
        values[int(name)] = index
    if staged.ignore is not None:
        values[staged.ignore] = IGNORE
    scores: list[ClassScore] = []
    missing: list[str] = []
    for case in labelled:
        dice, surfaces, because = _compared(staged, case, predictions / f"{case.id}.zarr", values, len(classes))
        if because is not None:
            missing.append(f"surface Dice and HD95 of {case.id}: not measured, because {because}")
        for index, name in enumerate(classes[1:]):
            surface = surfaces[index] if surfaces else SurfaceScore(math.nan, math.nan)
            known = None if held_out is None else case.id in held_out
            parts = (dice[index + 1], surface.surface_dice, surface.hd95)
            scores.append(ClassScore(case.id, name, known, *(None if math.isnan(part) else part for part in parts)))
    found = Scored(tuple(scores), tuple(missing))
    content = {"scores": [vars(score) for score in scores], "not_measured": missing}
    write_atomically(predictions / SCORES_FILE, json.dumps(content, indent=1) + "\n")
    return found


def _compared(
    staged: StagedSet, case: StagedCase, predicted: Path, values: np.ndarray, classes: int
) -> tuple[list[float], list[SurfaceScore], str | None]:
    made, true = open_volume(predicted), open_volume(staged.folder / str(case.label))
    depth, height, width = case.shape
    because = lacking(depth * height * width)
    counts = torch.zeros(classes, 3, dtype=torch.float64)
    whole: list[tuple[torch.Tensor, torch.Tensor]] = []
    for first in range(0, depth, _PLANES):
        planes = min(_PLANES, depth - first)
        ours = torch.from_numpy(np.asarray(made.read(first, 0, 0, planes, height, width)))
        theirs = torch.from_numpy(values[np.asarray(true.read(first, 0, 0, planes, height, width))])
        counts += overlap_counts(ours, theirs, classes, IGNORE)
        if because is None:
            whole.append((ours, theirs))
    surfaces = []
    if because is None:
        ours, theirs = (torch.cat(parts) for parts in zip(*whole, strict=True))
        surfaces = surface_scores(ours, theirs, classes, IGNORE, case.spacing)
    return dice_scores(counts).tolist(), surfaces, because


def _held_out(run: Path) -> set[str] | None:
    """Volumes that the training scored itself, of all folds; None: it wrote none."""
    folder = run if run.is_dir() else run.parent
    found: set[str] = set()
    for path in (folder / SCORES_FILE, *folder.glob(f"*/{SCORES_FILE}")):
        try:
            found |= set(json.loads(path.read_text("utf-8"))["dice"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found or None
