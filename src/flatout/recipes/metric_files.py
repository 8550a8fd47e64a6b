"""The tables that a fit writes: metrics.csv by epoch, steps.csv by step."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from flatout.atomic_file import write_atomically
from flatout.formats.training_folder import METRICS_FILE, STEPS_FILE
from flatout.recipes.interfaces import EpochRecord


def write_metric_files(
    folder: Path, records: Sequence[EpochRecord], steps: Sequence[tuple[int, int, float, float]]
) -> None:
    """Write both tables.

    Args:
        folder: of both files.
        records: one an epoch; metrics that an epoch lacks are left empty.
        steps: step, epoch, loss, learning rate.
    """
    names = sorted({name for record in records for name in record.metrics})
    head = ["epoch", *names, "samples_per_s", "train_s", "wait_s", "validation_s"]
    rows = [
        [r.epoch, *(r.metrics.get(n, "") for n in names), r.samples / r.train_s, r.train_s, r.wait_s, r.validation_s]
        for r in records
    ]
    write_csv(folder / METRICS_FILE, head, rows)
    write_csv(folder / STEPS_FILE, ["step", "epoch", "loss", "lr"], steps)


def write_csv(path: Path, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write a table atomically."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    write_atomically(path, text.getvalue())
