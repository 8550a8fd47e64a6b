"""Checkpoint files: written under a temporary name, renamed when complete, chosen by score, checked when read."""

from __future__ import annotations

import math
import pickle
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins import CheckpointIO
from pytorch_lightning.callbacks import Checkpoint

from flatout.atomic_file import replacing
from flatout.errors import DamagedCheckpoint, TrainingFailed
from flatout.recipes.early_stopping import better
from flatout.recipes.interfaces import EpochRecord

LAST = "last.ckpt"
BEST = re.compile(r"best-(\d{3,})\.ckpt")


class WholeFiles(CheckpointIO):
    """Atomic checkpoint files for Lightning: the old file or the new one, even after a crash."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: object = None) -> None:
        """Write ``path``.

        Raises:
            TrainingFailed: it cannot be written, such as on a full disk; an earlier file of that name is untouched.
        """
        try:
            with replacing(Path(path)) as file:
                torch.save(checkpoint, file)
        except (OSError, RuntimeError) as error:
            cause = _refused(error)
            if cause is None:
                raise
            raise TrainingFailed(
                f"{path}: {cause.strerror or cause}: the checkpoint could not be written; earlier ones are whole: "
                "make room, then go on with --resume"
            ) from None

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Read ``path``: tensors and plain values only; no code in it is run."""
        return read_checkpoint(Path(path), map_location or "cpu")

    def remove_checkpoint(self, path: str | Path) -> None:
        """Remove ``path`` if it exists."""
        Path(path).unlink(missing_ok=True)


def _refused(error: BaseException | None) -> OSError | None:
    """The underlying OSError, which torch wraps; None if there is none."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error


def read_checkpoint(path: Path, map_location: Any = "cpu") -> dict[str, Any]:
    """Read a checkpoint and check that it is intact: its checksums, and that Lightning wrote it.

    Raises:
        DamagedCheckpoint: a check failed.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            changed = archive.testzip()
        if changed is not None:
            raise DamagedCheckpoint(f"{path}: damaged: the checksum of {changed} is wrong")
        found: Any = torch.load(path, map_location=map_location, weights_only=True)
    except DamagedCheckpoint:
        raise
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        size = path.stat().st_size if path.is_file() else None
        what = "is missing" if size is None else "is empty" if not size else f"is no whole checkpoint ({size:,} bytes)"
        if isinstance(error, PermissionError):
            what = "may not be read"
        raise DamagedCheckpoint(f"{path}: {what}") from None
    if not isinstance(found, dict) or "state_dict" not in found:
        raise DamagedCheckpoint(f"{path}: no checkpoint of a training")
    return found


def ranked(records: Sequence[EpochRecord], metric: str) -> list[EpochRecord]:
    """The scored epochs, best first; the earlier of equals first; without those whose score is NaN."""
    scored = [record for record in records if math.isfinite(record.metrics.get(metric, math.nan))]
    sign = 1 if better(metric, 0, 1) else -1
    return sorted(scored, key=lambda record: (sign * record.metrics[metric], record.epoch))


def best_path(folder: Path, epoch: int) -> Path:
    """Path of the checkpoint of one of the best epochs."""
    return folder / f"best-{epoch:03d}.ckpt"


def remove_surpassed(folder: Path, records: Sequence[EpochRecord], metric: str, keep: int) -> None:
    """Remove the checkpoints of epochs that are not among the ``keep`` best.

    Called at the end of a fit too: one that was killed after it had written its last state left one more.
    """
    for record in ranked(records, metric)[keep:]:
        best_path(folder, record.epoch).unlink(missing_ok=True)


def kept_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a fit, the one with most progress first."""
    best = [(int(match[1]), path) for path in folder.glob("best-*.ckpt") if (match := BEST.fullmatch(path.name))]
    last = [folder / LAST] if (folder / LAST).is_file() else []
    return [*last, *(path for _, path in sorted(best, reverse=True))]


class Checkpoints(Checkpoint):  # type: ignore[misc]
    """Writes the best epochs and the last state.

    The epochs to keep follow from the scores alone, so nothing else must survive an interruption. Runs after
    all other callbacks (Lightning sorts it there), so their state is in the checkpoint.
    """

    def __init__(self, history: Any, folder: Path, metric: str, keep: int, every_batches: int) -> None:
        """Write into ``folder``; ``every_batches`` 0: after epochs only."""
        self._history, self._folder, self._metric, self._keep = history, folder, metric, keep
        self._every = every_batches

    def on_train_batch_end(self, trainer: pl.Trainer, task: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Save inside the epoch."""
        done = batch_idx + 1
        if self._every and done % self._every == 0 and done < trainer.num_training_batches:
            self._history.read_losses(trainer, task)
            trainer.save_checkpoint(self._folder / LAST)

    def on_train_epoch_end(self, trainer: pl.Trainer, task: Any) -> None:
        """Save the epoch; remove checkpoints that are no longer among the best."""
        best = [record.epoch for record in ranked(self._history.records, self._metric)[: self._keep]]
        if trainer.current_epoch in best:
            trainer.save_checkpoint(best_path(self._folder, trainer.current_epoch))
        trainer.save_checkpoint(self._folder / LAST)
        if trainer.is_global_zero:
            remove_surpassed(self._folder, self._history.records, self._metric, self._keep)
