"""Summary of a training: one JSON file, which exists only if the training ended by itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flatout.atomic_file import write_atomically
from flatout.formats.training_folder import SUBMISSION_FILE, SUMMARY_FILE
from flatout.recipes.interfaces import EpochRecord, Fit


def as_json(fit: Fit) -> dict[str, Any]:
    """A fit's figures as plain values."""
    submission = fit.folder / SUBMISSION_FILE
    return {
        **fit.metrics,
        "epochs": len(fit.records),
        "best_epoch": fit.best_epoch,
        "stopped": fit.stopped,
        "checkpoint": str(fit.best) if fit.best else None,
        "submission": str(submission) if submission.is_file() else None,
        "folder": str(fit.folder),
        "notes": list(fit.notes),
    }


def write_summary(fit: Fit) -> None:
    """Write it into the fit's folder, replacing an earlier one as a whole."""
    write_atomically(fit.folder / SUMMARY_FILE, json.dumps(as_json(fit), indent=1) + "\n")


def read_summary(folder: Path) -> dict[str, Any] | None:
    """The summary written by :func:`write_summary`; None if missing, so the fit has not ended."""
    try:
        found = json.loads((folder / SUMMARY_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and {"stopped", "notes"} <= found.keys() else None


class Finished:
    """Policy of a finished fold: it is not trained further."""

    planned_epochs = 1_000_000_000

    def resumed(self, records: Sequence[EpochRecord]) -> str | None:
        return "the fold is finished"

    # untested: part of the interface, not called
    def after_step(self, epoch: int, step: int) -> str | None:
        """Not called."""
        return "the fold is finished"

    # untested: part of the interface, not called
    def after_epoch(self, record: EpochRecord) -> str | None:
        """Not called."""
        return "the fold is finished"
