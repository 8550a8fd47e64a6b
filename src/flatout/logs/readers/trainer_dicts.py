"""Hugging Face's Trainer: the dictionaries it prints, and trainer_state.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from flatout.logs.observations import Kind, Observation

CUE = rb"'(?:loss|eval_loss|train_runtime|eval_runtime)':"
_DICT = re.compile(r"\{('[\w./-]+': '?[^{}]*?)\}")
_ITEM = re.compile(r"'([\w./-]+)': '?(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|nan|-?inf)'?")
_SETTINGS = {
    "max_steps": "steps",
    "num_train_epochs": "epochs",
    "train_batch_size": "batch_size",
    "logging_steps": "logging_steps",
}


def parse(text: str) -> list[Observation]:
    """One printed dictionary; it is matched, never evaluated."""
    found = _DICT.search(text)
    if found is None:
        return []
    return row({name: float(value) for name, value in _ITEM.findall(found[1])})


def row(values: dict[str, float]) -> list[Observation]:
    """An entry of the log history."""
    when: dict[str, float] = {name: value for name, value in values.items() if name in ("epoch", "step")}
    if "train_runtime" in values:
        totals = {"runtime_s": values["train_runtime"]} | when
        for name, ours in (("train_samples_per_second", "samples_s"), ("train_steps_per_second", "its")):
            if name in values:
                totals[ours] = values[name]
        return [Observation(Kind.TOTALS, totals)]
    metrics = dict(when)
    if "loss" in values:
        metrics["train_loss"] = values["loss"]
    if "eval_loss" in values:
        metrics["val_loss"] = values["eval_loss"]
    if "eval_accuracy" in values:
        metrics["val_acc1"] = values["eval_accuracy"]
    return [Observation(Kind.METRICS, metrics)] if len(metrics) > len(when) else []


def read_state(content: bytes) -> Iterator[Observation]:
    """trainer_state.json: the settings, then each row of log_history; it has no times.

    Raises:
        ValueError: not JSON, or not such a file.
    """
    state = json.loads(content)
    history = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(history, list):
        raise ValueError("it has no log_history")
    settings = {ours: value for name, ours in _SETTINGS.items() if (value := number(state.get(name))) is not None}
    if (reached := number(state.get("global_step"))) is not None:
        settings["global_step"] = reached
    yield Observation(Kind.SETTING, settings)
    for place, entry in enumerate(history, 1):
        if not isinstance(entry, dict):
            continue
        for one in row({name: v for name, value in entry.items() if (v := number(value)) is not None}):
            one.line = place
            one.labels["of"] = "log_history"
            yield one


def number(value: Any) -> float | None:
    """A JSON number as a float; None for all else."""
    return (
        float(value) if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300 else None
    )
