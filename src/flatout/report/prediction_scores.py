"""Scores of predicted volumes, as a table."""

from __future__ import annotations

import math
from statistics import fmean

from flatout.recipes.class_scores import ClassScore, Scored
from flatout.terminal_text import one_line

_HELD_OUT = {True: "held out", False: "trained on", None: "not known"}


def score_lines(scored: Scored) -> str:
    """One line a class of a volume, means of the held-out ones, and what is missing."""
    width = max([6, *(len(one_line(score.case)) for score in scored.scores)])
    head = f"  {'volume':<{width}}  {'':<10}  class   Dice  surface Dice  HD95"
    lines = [head, *(_line(score, width) for score in scored.scores)]
    held_out = [score for score in scored.scores if score.held_out]
    if held_out:
        lines.append(f"held out: {_mean('Dice', [s.dice for s in held_out])}")
    if any(score.surface_dice is not None for score in held_out):
        lines[-1] += f", {_mean('surface Dice', [s.surface_dice for s in held_out])}"
    lines.append("Surface Dice: within 2 voxels. HD95 in units of the voxels' spacing.")
    return "\n".join([*lines, *map(one_line, scored.not_measured)])


def _line(score: ClassScore, width: int) -> str:
    known = _HELD_OUT[score.held_out]
    return (
        f"  {one_line(score.case):<{width}}  {known:<10}  {score.name:>5}  {_number(score.dice, 3):>5}"
        f"  {_number(score.surface_dice, 3):>12}  {_number(score.hd95, 1):>4}"
    )


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def _mean(name: str, values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{name} {fmean(known):.3f}" if known else f"{name} -"
