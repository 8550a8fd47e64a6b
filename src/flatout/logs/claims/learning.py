"""Claims about learning: whether a validation is better than guessing."""

from __future__ import annotations

import math

from flatout.diagnose.chance import LEARNED
from flatout.logs.claims.verdict import Claim
from flatout.logs.facts import FileFacts, Series
from flatout.units import percent

Z = 2.0  # standard errors within which an accuracy may be luck


def at_chance(facts: FileFacts, _: list[FileFacts]) -> list[Claim]:
    """Validation accuracy within the binomial interval of guessing, or a validation loss above ln C.

    Guessing among C classes is right with p = 1/C, and n answers scatter by sqrt(p (1 - p) / n).
    """
    classes, images = facts.setting("classes"), facts.setting("val_samples")
    accuracy, loss = facts.metrics.get("val_acc1"), facts.metrics.get("val_loss")
    train = facts.metrics.get("train_loss")
    if classes is None or classes.value < 2 or accuracy is None:
        return []
    count, chance = classes.value, 1 / classes.value
    best = accuracy.most
    if images is None:
        if best > 2 * chance:
            return []
        width = None
        found = f"guessing gives {percent(chance, decimals=1)}; how many were validated is not said"
    else:
        width = math.sqrt(chance * (1 - chance) / images.value)
        z = (best - chance) / width
        if z > Z:
            return [
                Claim(
                    "at_chance",
                    "consistent",
                    f"val acc1 {percent(best, decimals=1)}",
                    f"{z:.0f} standard errors above guessing",
                    (accuracy.source,),
                )
            ]
        found = (
            f"guessing gives {percent(chance, decimals=1)} ± {percent(width, decimals=2)} of {images.value:,.0f} images"
        )
        found += f": {z:.1f} standard errors away"
    found += _top5(facts.metrics.get("val_acc5"), count, images.value if images else None)
    found += _losses(train, loss, count)
    return [
        Claim(
            "at_chance",
            "off" if width else "unknown",
            f"val acc1 {percent(best, decimals=1)}",
            found,
            (accuracy.source, classes.source),
        )
    ]


def _top5(series: Series | None, classes: float, images: float | None) -> str:
    if series is None or classes <= 5 or images is None:
        return ""
    chance = 5 / classes
    z = (series.most - chance) / math.sqrt(chance * (1 - chance) / images)
    return f"; acc5 {percent(series.most, decimals=1)} is {abs(z):.1f} away" if z <= Z else ""


def _above(seen: float, bound: float) -> bool:
    """Whether it is above by more than the rounding of its digits."""
    decimals = len(f"{seen:.12f}".rstrip("0").partition(".")[2])
    return seen > bound + 0.5 * 10.0**-decimals


def _losses(train: Series | None, loss: Series | None, classes: float) -> str:
    guess = math.log(classes)
    found = ""
    if loss is not None and _above(loss.last, guess):
        found += f"; val loss {loss.last:.3f} is above ln {classes:.0f} = {guess:.3f}: worse than guessing"
    if train is not None and train.last < LEARNED * guess:
        found += f", while train loss {train.last:.2f} falls: look at the validation's labels"
    return found
