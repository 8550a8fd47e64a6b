"""Interfaces between the parts of a training: data, one fit, and the rules that may end it early."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from flatout.loader.interfaces import Source


class TrainingData(Protocol):
    """What one training and one validation are made of."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Their names, in the order of the model's outputs."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out, in words."""

    @property
    def things(self) -> str:
        """What it consists of: "images"."""

    @property
    def train_count(self) -> int:
        """Samples of an epoch."""

    @property
    def counts(self) -> str:
        """How much there is for training and validation, in words."""

    @property
    def is_scored(self) -> bool:
        """True if there is something to validate on."""

    def digest(self) -> str:
        """SHA-256 of what identifies the data, in its order."""


class Waits(Protocol):
    """Counts of a loader's work."""

    wait_s: float  # the consumer waited for batches


class Loader(Protocol):
    """Batches of an epoch that can be resumed inside it."""

    @property
    def stats(self) -> Waits:
        """Counts so far."""

    def set_epoch(self, epoch: int) -> None:
        """Begin another epoch."""

    def __len__(self) -> int:
        """Batches an epoch."""


@dataclass(frozen=True, kw_only=True)
class ImageData:
    """The images of one training and one validation, with the class indices that both share."""

    train: Source
    train_indices: Sequence[int]  # indices into train.samples
    validation: Source | None
    validation_indices: Sequence[int]
    classes: tuple[str, ...]  # labels of both sources are indices into it
    notes: tuple[str, ...] = ()
    things: str = "images"
    original_indices: tuple[int, ...] | None = None  # of drawn classes: their places among all classes of the set

    @property
    def train_count(self) -> int:
        """Images of an epoch."""
        return len(self.train_indices)

    @property
    def counts(self) -> str:
        """How many there are."""
        return f"{len(self.train_indices):,} for training, {len(self.validation_indices):,} for validation"

    @property
    def is_scored(self) -> bool:
        """True if there are images to validate on."""
        return self.validation is not None

    def digest(self) -> str:
        """SHA-256 over the names and labels of all images, in their order."""
        digest = hashlib.sha256()
        for source, indices in ((self.train, self.train_indices), (self.validation, self.validation_indices)):
            for index in indices if source is not None else ():
                assert source is not None
                sample = source.samples[index]
                digest.update(f"{sample.label}\t{sample.key}\n".encode(errors="surrogateescape"))
            digest.update(b"\n")
        return digest.hexdigest()


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
