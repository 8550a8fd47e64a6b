"""Predictions and measurements side by side, as lines of at most 80 columns, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flatout.report.layout import shorten_middle
from flatout.terminal_text import one_line
from flatout.trials.calibration import Score, Scored, score
from flatout.units import factor, interval, percent

WIDTH = 80


def lines(scored: Sequence[Scored], folder: Path) -> list[str]:
    """For a terminal.

    Args:
        scored: the predictions, one at least.
        folder: where they were found.
    """
    whole = score(scored)
    where = shorten_middle(one_line(str(folder)), 36, "...")
    text = [
        f"Predicted against measured: {whole.count} trials below {where}",
        "",
        f"  {'remedy':24}{'trials':>7}{'median error':>14}{'90%':>8}{'inside':>9}{'bias':>8}",
    ]
    text += [
        f"  {name:24}{found.count:>7}{percent(found.median_error):>14}{percent(found.p90_error):>8}"
        f"{percent(found.coverage):>9}{factor(found.bias):>8}"
        for name, found in [*sorted(_by_remedy(scored).items()), ("all", whole)]
    ]
    text += ["", f"  {'predicted':24}{'measured':>10}   trial"]
    for one in scored:
        mark = "" if one.inside else "  outside"
        line = f"  {interval(one.predicted):24}{factor(one.measured.factor):>10}   {one_line(one.title)[:40]}{mark}"
        text.append(line[:WIDTH])
    return text


def to_dict(scored: Sequence[Scored]) -> dict[str, Any]:
    """For ``--json``."""
    return {
        "all": asdict(score(scored)),
        "remedies": {name: asdict(found) for name, found in sorted(_by_remedy(scored).items())},
        "trials": [{**asdict(one), "error": one.error, "inside": one.inside} for one in scored],
    }


def _by_remedy(scored: Sequence[Scored]) -> dict[str, Score]:
    return {name: score([one for one in scored if one.remedy == name]) for name in {one.remedy for one in scored}}
