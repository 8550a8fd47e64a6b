"""Predictions and measurements side by side, as lines of at most 80 columns, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flatout.report.layout import shorten_middle
from flatout.terminal_text import one_line
from flatout.trials.calibration import Score, Scored, score
from flatout.units import counted, factor, interval, percent

WIDTH = 80


def lines(scored: Sequence[Scored], folder: Path) -> list[str]:
    """For a terminal.

    Args:
        scored: the predictions, one at least.
        folder: where they were found.
    """
    decided = sum(one.decided for one in scored)
    where = shorten_middle(one_line(str(folder)), 36, "...")
    text = [
        f"Predicted against measured: {counted(len(scored), 'trial')} below {where}",
        "",
        f"  {'remedy':24}{'trials':>7}{'median error':>14}{'90%':>8}{'inside':>9}{'bias':>8}",
    ]
    text += [
        f"  {name:24}{found.count:>7}{percent(found.median_error):>14}{percent(found.p90_error):>8}"
        f"{percent(found.coverage):>9}{factor(found.bias):>8}"
        for name, found in [*sorted(_by_remedy(scored).items()), ("all", score(scored))]
        if found is not None
    ]
    if decided < len(scored):
        text += ["", f"  Left out: {len(scored) - decided} whose measurement is too uncertain to judge by."]
    text += ["", f"  {'predicted':24}{'measured':>10}  {'':9}  trial"]
    for one in scored:
        mark = "undecided" if not one.decided else "inside" if one.inside else "outside"
        line = f"  {interval(one.predicted):24}{factor(one.measured.factor):>10}  {mark:9}  "
        title, room = one_line(one.title), WIDTH - len(line)
        text.append(line + (title if len(title) <= room else f"{title[: room - 3]}..."))
    return text


def to_dict(scored: Sequence[Scored]) -> dict[str, Any]:
    """For ``--json``."""
    return {
        "all": asdict(whole) if (whole := score(scored)) is not None else None,
        "remedies": {name: asdict(found) for name, found in sorted(_by_remedy(scored).items())},
        "trials": [{**asdict(one), "decided": one.decided, "error": one.error, "inside": one.inside} for one in scored],
    }


def _by_remedy(scored: Sequence[Scored]) -> dict[str, Score]:
    names = {one.remedy for one in scored}
    found = {name: score([one for one in scored if one.remedy == name]) for name in names}
    return {name: one for name, one in found.items() if one is not None}
