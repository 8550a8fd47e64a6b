"""Scores of the classes in predicted volumes: the plain result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ClassScore:
    """Scores of one class in one volume. None: neither predicted nor there, or not measured."""

    case: str
    name: str
    held_out: bool | None  # None: the training did not write what it held out
    dice: float | None
    surface_dice: float | None
    hd95: float | None


@dataclass(frozen=True)
class Scored:
    """All scores, and what could not be measured."""

    scores: tuple[ClassScore, ...]
    not_measured: tuple[str, ...]
