"""Losses and accuracies that the training gave to its loggers."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from flatout.probe.contract import METRIC_PREFIX
from flatout.record import ProcessRecord

_VALIDATION = re.compile(r"(^|[^a-z])(val|valid|validation|eval|test|dev)($|[^a-z])")
_LOSS = re.compile(r"(^|[^a-z])loss($|[^a-z])")
_ACCURACY = re.compile(r"(^|[^a-z])(acc|accuracy|top)[-_@]?1?($|[^a-z0-9])")


@dataclass(frozen=True)
class Metrics:
    """The last value of each. None: none was logged under a recognisable name.

    Attributes:
        train_loss: of the training.
        val_loss: of the validation.
        val_accuracy: of the validation, 0 to 1.
    """

    train_loss: float | None = None
    val_loss: float | None = None
    val_accuracy: float | None = None


def read_metrics(process: ProcessRecord) -> Metrics:
    """The metrics that the training process logged."""
    # Names of flatout are what the probe itself measured.
    last = {name.lower(): value for name, value in process.metrics() if not name.startswith(METRIC_PREFIX)}
    validated = {name: value for name, value in last.items() if _VALIDATION.search(name)}
    trained = {name: value for name, value in last.items() if name not in validated}
    accuracy = _first(validated, _ACCURACY)
    return Metrics(
        train_loss=_first(trained, _LOSS),
        val_loss=_first(validated, _LOSS),
        val_accuracy=accuracy / 100 if accuracy is not None and accuracy > 1 else accuracy,
    )


def _first(values: dict[str, float], pattern: re.Pattern[str]) -> float | None:
    """The value whose name is shortest among those that fit: val_loss before val_aux_loss."""
    fitting = sorted((name for name in values if pattern.search(name)), key=lambda name: (len(name), name))
    return values[fitting[0]] if fitting and math.isfinite(values[fitting[0]]) else None
