"""Interfaces between the parts of a training: data, one fit, and the rules that may end it early."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from flatout.loader.interfaces import Source


@dataclass(frozen=True, kw_only=True)
class ImageData:
    """The images of one training and one validation, with the class indices that both share."""

    train: Source
    train_indices: Sequence[int]  # indices into train.samples
    validation: Source | None
    validation_indices: Sequence[int]
    classes: tuple[str, ...]  # labels of both sources are indices into it
    notes: tuple[str, ...] = ()  # what was left out, in words


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """Metrics and times of one epoch."""

    epoch: int  # from 0
    steps: int  # optimizer steps
    samples: int
    metrics: dict[str, float]  # "train/loss", "val/loss", "val/acc1", "val/acc5", "lr"
    train_s: float
    wait_s: float  # part of train_s spent waiting for batches
    validation_s: float
    checkpoint_s: float


class Policy(Protocol):
    """A rule that may end a fit early: early stopping, a deadline."""

    @property
    def planned_epochs(self) -> int:
        """Number of epochs that this fit will have by the current plan; the learning-rate schedule follows it."""

    def resumed(self, records: Sequence[EpochRecord]) -> str | None:
        """Called before a fit resumes, with its finished epochs; a returned reason means it was already over."""

    def after_step(self, epoch: int, step: int) -> str | None:
        """Called after each optimizer step; a reason ends the epoch (and the fit, after a last validation)."""

    def after_epoch(self, record: EpochRecord) -> str | None:
        """Called after validation and checkpoint; a reason ends the fit."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Result of one fit."""

    folder: Path
    records: tuple[EpochRecord, ...]
    best: Path | None  # checkpoint with the best score; None if nothing was scored
    last: Path | None
    best_epoch: int | None
    stopped: str | None  # why before the last epoch; None: all epochs were trained
    metrics: dict[str, float] = field(default_factory=dict)  # of the best epoch
    notes: tuple[str, ...] = ()  # fallbacks taken and warnings, in words
