"""What the page of a training by a recipe shows: losses, scores, learning rate, wait, and the plan to the deadline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flatout.export.timeline import Floats
from flatout.formats.training_folder import Columns, Trained, TrainingFolder
from flatout.units import counted, duration, percent

MOST_POINTS = 1_000  # of a line
_TIMES = ("samples_per_s", "train_s", "wait_s", "validation_s")
Values = dict[str, Any]


def training_data(training: TrainingFolder) -> Values:
    """Everything that the page of a training shows."""
    charts = [_losses(training.fits), *_scores(training.fits), _rates(training.fits)]
    joined = max((line["joined"] for chart in charts for line in chart["lines"]), default=1)
    notes = [f"Of long lines each point is the mean of up to {joined} steps; the lighter band is their least and most."]
    return {
        "verdict": verdict(training),
        "folder": training.path.name,
        "steps": [0, max(_last_step(fit) for fit in training.fits)],
        "charts": [chart for chart in charts if chart["lines"]],
        "fits": [_fit(fit) for fit in training.fits],
        "deadline": _deadline(training.deadline),
        "notes": notes if joined > 1 else [],
    }


def verdict(training: TrainingFolder) -> str:
    """One sentence: how much was trained in what time, and what share of it was waiting."""
    epochs = sum(len(fit.epochs["epoch"]) for fit in training.fits)
    train_s, wait_s, validation_s = (
        sum(_sum(fit.epochs, name) for fit in training.fits) for name in ("train_s", "wait_s", "validation_s")
    )
    text = f"{counted(epochs, 'epoch')} in {duration(train_s + validation_s)}"
    if len(training.fits) > 1:
        text += f" ({counted(len(training.fits), 'fold')})"
    text += (
        f"; {percent(wait_s / train_s) if train_s else 'an unknown share'} of the training time was waiting for data"
    )
    return text + ("." if training.fits[-1].summary is not None else ". The training has not ended by itself.")


def text_lines(training: TrainingFolder) -> list[str]:
    """The same for readers without JavaScript: a sentence, and a table an epoch."""
    lines = [verdict(training), ""]
    for fit in training.fits:
        names = list(fit.epochs)
        columns = {**fit.epochs, "epoch": [None if at is None else at + 1 for at in fit.epochs["epoch"]]}
        rows = [names, *([_shown(columns[name][row]) for name in names] for row in range(len(columns["epoch"])))]
        widths = [max(len(row[place]) for row in rows) for place in range(len(names))]
        lines += [fit.name, *("  ".join(map(str.rjust, row, widths)) for row in rows), ""]
    return lines


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}"


def _fit(fit: Trained) -> Values:
    metrics = [name for name in fit.epochs if name not in ("epoch", *_TIMES)]
    epochs = [
        {
            "epoch": _at(fit.epochs, "epoch", row),
            "metrics": [_at(fit.epochs, name, row) for name in metrics],
            **{name: _at(fit.epochs, name, row) for name in _TIMES},
        }
        for row in range(len(fit.epochs["epoch"]))
    ]
    ended = fit.summary or {}
    return {
        "name": fit.name,
        "metrics": metrics,
        "epochs": epochs,
        "best": ended.get("best_epoch"),
        "stopped": ended.get("stopped"),
        "notes": [str(note) for note in ended.get("notes", ())],
    }


def _losses(fits: Sequence[Trained]) -> Values:
    lines = []
    for fit in fits:
        if fit.steps.get("loss"):
            lines.append(_line(fit, "loss of a step", fit.steps["step"], fit.steps["loss"]))
        at = _epoch_ends(fit)
        for name, values in fit.epochs.items():
            if name.endswith("loss") and not (fit.steps.get("loss") and name == "train/loss"):
                lines.append(_line(fit, name, at, values))
    return {"title": "Loss", "lines": lines}


def _scores(fits: Sequence[Trained]) -> list[Values]:
    """Scores between 0 and 1 share a chart; each other metric has its own."""
    names = [name for name in fits[0].epochs if name not in ("epoch", "lr", *_TIMES) and not name.endswith("loss")]
    shares = [name for name in names if all(_within(fit.epochs.get(name, ())) for fit in fits)]
    others = [[name] for name in names if name not in shares]

    def lines(group: Sequence[str]) -> list[Values]:
        return [
            _line(fit, name, _epoch_ends(fit), fit.epochs[name]) for fit in fits for name in group if name in fit.epochs
        ]

    return [
        {"title": "Scores", "lines": lines(shares)},
        *({"title": group[0], "lines": lines(group)} for group in others),
    ]


def _rates(fits: Sequence[Trained]) -> Values:
    lines = [_line(fit, "learning rate", fit.steps["step"], fit.steps["lr"]) for fit in fits if fit.steps.get("lr")]
    return {"title": "Learning rate", "lines": lines}


def _line(fit: Trained, name: str, at: Sequence[float | None], values: Sequence[float | None]) -> Values:
    """A line of at most ``MOST_POINTS`` points: of those that are joined the mean, and the range between extremes."""
    known = [(x, y) for x, y in zip(at, values, strict=False) if x is not None and y is not None]
    x, y = np.array([one[0] for one in known]), np.array([one[1] for one in known])
    joined = max(-(-len(x) // MOST_POINTS), 1)
    line: Values = {"name": f"{fit.name} {name}".strip(), "fit": fit.name, "metric": name, "joined": joined}
    if joined == 1:
        return line | {"x": x.tolist(), "y": _rounded(y)}
    first = np.arange(0, len(x), joined)
    means = np.add.reduceat(y, first) / np.diff(np.append(first, len(y)))
    low, high = np.minimum.reduceat(y, first), np.maximum.reduceat(y, first)
    return line | {"x": x[first].tolist(), "y": _rounded(means), "low": _rounded(low), "high": _rounded(high)}


def _epoch_ends(fit: Trained) -> list[float | None]:
    """Step at which each epoch ended; without steps the number of the epoch."""
    last = {epoch: step for step, epoch in zip(fit.steps.get("step", ()), fit.steps.get("epoch", ()), strict=False)}
    return [last.get(epoch, epoch) for epoch in fit.epochs["epoch"]] if last else fit.epochs["epoch"]


def _last_step(fit: Trained) -> float:
    known = [at for at in (*_epoch_ends(fit), *fit.steps.get("step", ())) if at is not None]
    return max(known, default=0.0) or 1.0


def _deadline(found: Values | None) -> Values | None:
    """The limit, what was used of it, and each plan that was made; None without a limit."""
    if found is None or not _number(found.get("limit_s")):
        return None
    names = ("at_s", "folds_done", "epochs_done", "epoch_s", "folds", "epochs", "needed_s", "left_s")
    plans = [
        {name: one[name] for name in names}
        for one in found.get("plans", ())
        if isinstance(one, dict) and all(_number(one.get(name)) for name in names)
    ]
    kept = {name: found.get(name) for name in ("limit_s", "used_s", "epochs", "folds")}
    return {**kept, "plans": plans} if all(map(_number, kept.values())) else None


def _number(value: object) -> bool:
    return isinstance(value, int | float)


def _within(values: Sequence[float | None]) -> bool:
    return all(value is None or 0 <= value <= 1 for value in values)


def _sum(columns: Columns, name: str) -> float:
    return sum(value for value in columns.get(name, ()) if value is not None)


def _at(columns: Columns, name: str, row: int) -> float | None:
    values = columns.get(name, ())
    return values[row] if row < len(values) else None


def _rounded(values: Floats) -> list[float]:
    return [float(f"{value:.6g}") for value in values.tolist()]
