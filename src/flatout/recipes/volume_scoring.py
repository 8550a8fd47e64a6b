"""Scores of whole held-out volumes by the best checkpoint, and a picture of a slice."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from flatout.atomic_file import replacing, write_atomically
from flatout.recipes.interfaces import Fit
from flatout.recipes.volume_data import IGNORE, VolumeData
from flatout.recipes.volume_predicting import Segmenter, labels_of, load_segmenter
from flatout.recipes.volume_schema import VolumeRecipe
from flatout.segmentation.dice import dice_scores, mean_dice, overlap_counts

SCORES_FILE, PICTURE_FILE = "scores.json", "slice.png"
_NAMED = 12  # classes in a picture's legend
WHOLE = "whole/dice"  # the metric: mean over the held-out volumes, each predicted whole


@dataclass
class Slice:
    """One plane with much foreground."""

    case: str
    z: int
    image: Any
    truth: Any
    predicted: Any


def score_volumes(
    recipe: VolumeRecipe, data: VolumeData, done: Fit, report: Callable[[str], None], left_s: float | None
) -> dict[str, float]:
    """Predict the validation volumes whole; write ``scores.json`` and ``slice.png`` into the fit's folder.

    Args:
        recipe: of the training.
        data: with the volumes.
        done: the fit, for its best checkpoint.
        report: called with the result.
        left_s: seconds that this may take; None: as long as it takes. What is not scored by then is left out.

    Returns:
        The mean Dice over the volumes, if at least one was scored.
    """
    checkpoint = done.best or done.last
    if checkpoint is None:
        return {}
    segmenter = load_segmenter(checkpoint)
    end = math.inf if left_s is None else time.monotonic() + left_s
    scores: dict[str, dict[str, float | None]] = {}
    means: list[float] = []
    shown: Slice | None = None
    for case in data.validation:
        counts, best = _scored(segmenter, data, case, end)
        if counts is None:
            report(f"{len(data.validation) - len(scores)} of {len(data.validation)} volumes not scored: no time left")
            break
        each = dice_scores(counts).tolist()
        named = zip(data.classes, each, strict=True)
        scores[case] = {name: None if math.isnan(score) else score for name, score in named}
        if not math.isnan(mean := mean_dice(counts)):
            means.append(mean)
        shown = shown or best
    if not scores:
        return {}
    mean = statistics.fmean(means) if means else math.nan
    write_atomically(
        done.folder / SCORES_FILE,
        json.dumps(
            {"checkpoint": checkpoint.name, "dice": scores, "mean": None if math.isnan(mean) else mean}, indent=1
        )
        + "\n",
    )
    report(f"whole volumes: Dice {mean:.3f}, the mean of {len(means)} held out: {done.folder / SCORES_FILE}")
    if shown is not None:
        draw_slice(shown, done.folder / PICTURE_FILE, data.classes)
        report(f"a slice with truth and prediction: {done.folder / PICTURE_FILE}")
    return {} if math.isnan(mean) else {WHOLE: mean}


def _scored(segmenter: Segmenter, data: VolumeData, case: str, end: float) -> tuple[torch.Tensor | None, Slice | None]:
    """Counts over a volume and its plane with most foreground; None if the time was over before its last plane."""
    image, label, to_indices = data.image(case), data.label(case), data.class_indices()
    _, height, width = (int(side) for side in image.shape)
    counts = torch.zeros(len(data.classes), 3, dtype=torch.float64)
    most, best = 0, None
    for planes in segmenter.slide(image):
        predicted = labels_of(planes)
        stored_labels = torch.from_numpy(label.read(planes.first, 0, 0, len(predicted), height, width))
        truth = to_indices(stored_labels).numpy()
        counts += overlap_counts(predicted, torch.from_numpy(truth), len(data.classes), IGNORE)
        foreground = ((truth > 0) & (truth != IGNORE)).sum((1, 2))
        at = int(foreground.argmax())
        if best is None or foreground[at] > most:
            most, z = int(foreground[at]), planes.first + at
            stored = image.read(z, 0, 0, 1, height, width)[0]
            best = Slice(case, z, stored, truth[at], predicted[at].numpy())
        if time.monotonic() > end:
            return None, None
    return counts, best


def draw_slice(shown: Slice, path: Path, classes: Sequence[str]) -> None:
    """Draw a plane as it is, with its truth, and with what was predicted."""
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(12, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    low, high = np.percentile(shown.image, (0.5, 99.5))
    axes = figure.subplots(1, 3)
    colours, of_class = colormaps["autumn"], Normalize(1, max(len(classes) - 1, 2))
    parts = (("image", None), ("truth", shown.truth), ("prediction", shown.predicted))
    for axis, (title, overlay) in zip(axes, parts, strict=True):
        axis.imshow(shown.image, cmap="gray", vmin=low, vmax=max(high, low + 1e-6), interpolation="nearest")
        if overlay is not None:
            hidden = np.ma.masked_where((overlay == 0) | (overlay == IGNORE), overlay)
            axis.imshow(hidden, cmap=colours, norm=of_class, alpha=0.6, interpolation="nearest")
        axis.set_title(title)
        axis.set_axis_off()
    named = [Patch(color=colours(of_class(index)), label=name) for index, name in enumerate(classes) if index]
    figure.legend(handles=named[:_NAMED], title="class", loc="outside right center")
    figure.suptitle(f"{shown.case}, plane {shown.z}")
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=100)
