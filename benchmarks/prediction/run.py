#!/usr/bin/env python3
"""How good predictions are: from one run of each grid, every other configuration predicted and measured.

Usage: python benchmarks/prediction/run.py [--grids NAME ...] [--seconds S] [--rounds N] [--output FILE]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent / "shared")]

from conditions import head  # noqa: E402
from grids import Configuration, Grid, measure, read_grids  # noqa: E402

from flatout.measure.build import build_view  # noqa: E402
from flatout.predict.pipeline import Change  # noqa: E402
from flatout.predict.rate_model import fit  # noqa: E402
from flatout.predict.whatif import Wanted, WhatIf  # noqa: E402
from flatout.results import Gain  # noqa: E402

DATA = Path(__file__).resolve().parent.parent.parent / "build" / "prediction"
GOAL = "median of the error at most 10%, intervals hold 75 to 90%"


@dataclass(frozen=True)
class Row:
    """One prediction.

    Attributes:
        grid: its name.
        what: the options that were changed, as "workers, prefetch".
        configuration: predicted.
        predicted: factor on samples/s.
        means: the same by the model of means; None: it does not know that setting.
        measured: factor.
    """

    grid: str
    what: str
    configuration: Configuration
    predicted: Gain
    means: float | None
    measured: float

    @property
    def error(self) -> float:
        """|predicted / measured - 1|."""
        return abs(self.predicted.predicted / self.measured - 1.0)


def main() -> None:
    """Measure, predict, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grids", nargs="*", help="only these")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each configuration")
    parser.add_argument("--output", type=Path, help="a Markdown page")
    options = parser.parse_args()
    rows: list[Row] = []
    for grid in read_grids(options.grids):
        rows += predict(grid, options.seconds, options.rounds)
    text = page(rows, options.seconds, options.rounds)
    if options.output:
        options.output.write_text(text)
    print(text)


def predict(grid: Grid, seconds: float, rounds: int) -> list[Row]:
    """All configurations but the one that predictions start from."""
    measured = measure(grid, DATA, seconds, rounds)
    start = measured[grid.start]
    view = build_view(start.runs[0])
    model = fit(view) if view else None
    assert view is not None and model is not None, f"{grid.name}: nothing was recorded"
    whatif = WhatIf(view, model)
    rows = []
    for configuration, found in measured.items():
        if configuration == grid.start:
            continue
        changed = {name: value for name, value in configuration if dict(grid.start)[name] != value}
        wanted = Wanted(
            num_workers=changed.get("workers"),
            prefetch_factor=changed.get("prefetch"),
            batch_size=changed.get("batch"),
            blocked_factor=changed.get("latency", 1.0) / dict(grid.start).get("latency", 1.0),
        )
        means = None
        if set(changed) <= {"workers", "latency"} and changed.get("workers") != 0:
            means = model.factor(Change(num_workers=changed.get("workers"), fetch_blocked_factor=wanted.blocked_factor))
        what = ", ".join(name for name in grid.vary if name in changed)
        rows.append(Row(grid.name, what, configuration, whatif.gain(wanted), means, found.rate / start.rate))
    return rows


def page(rows: Sequence[Row], seconds: float, rounds: int) -> str:
    """Markdown."""
    lines = [
        *head("How good the predictions are", "benchmarks/prediction/run.py", ("flatout", "torch"), {}),
        f"- {len({row.grid for row in rows})} grids of a training with set costs (`grids.yaml`), {len(rows)} "
        f"predictions, each from one run of {seconds:g} s; measured is the median of {rounds} run(s).",
        "- Predicted and measured are factors on samples/s; the error is |predicted / measured - 1|.",
        f"- Goal: {GOAL}.",
        "",
        "## Figures",
        "",
        *_table(
            ("", "predictions", "median error", "90%", "intervals hold", "model of means: median error"),
            [
                _figures("all", rows),
                *(
                    _figures(name, [row for row in rows if row.grid == name])
                    for name in dict.fromkeys(r.grid for r in rows)
                ),
            ],
        ),
        "## By what was changed",
        "",
        *_table(
            ("", "predictions", "median error", "90%", "intervals hold", "model of means: median error"),
            [_figures(what, [row for row in rows if row.what == what]) for what in dict.fromkeys(r.what for r in rows)],
        ),
        "## Every prediction",
        "",
        *_table(
            ("grid", "configuration", "predicted", "measured", "error"),
            [
                (
                    row.grid,
                    ", ".join(f"{name} {value}" for name, value in row.configuration),
                    f"{row.predicted.predicted:.2f} ({row.predicted.low:.2f}-{row.predicted.high:.2f})",
                    f"{row.measured:.2f}",
                    f"{row.error:.0%}"
                    + ("" if row.predicted.low <= row.measured <= row.predicted.high else ", outside"),
                )
                for row in rows
            ],
        ),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _figures(name: str, rows: Sequence[Row]) -> tuple[str, ...]:
    errors = [row.error for row in rows]
    held = statistics.mean(row.predicted.low <= row.measured <= row.predicted.high for row in rows)
    by_means = [abs(row.means / row.measured - 1.0) for row in rows if row.means is not None]
    of_means = f"{statistics.median(by_means):.1%} of {len(by_means)}" if by_means else ""
    values = (f"{statistics.median(errors):.1%}", f"{float(np.quantile(errors, 0.9)):.1%}", f"{held:.0%}", of_means)
    return (name, str(len(rows)), *values)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


if __name__ == "__main__":
    main()
