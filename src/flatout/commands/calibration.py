"""``flatout calibration``: predicted against measured, over all trials of a folder."""

from __future__ import annotations

import json as json_format
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from flatout.terminal_text import one_line


def calibration(
    json: Annotated[bool, typer.Option("--json", help="One JSON object for scripts.")] = False,
    folder: Annotated[
        Path, typer.Option("--folder", metavar="FOLDER", help="Where journals are kept.", show_default=True)
    ] = Path(".flatout/fixes"),
) -> None:
    """Show how good predictions were: each trial scores its own.

    The error is |predicted / measured - 1| of the factors on samples/s. An interval that is as wide as it says
    holds the measured factor in four of five cases.

    Example: flatout calibration
    """
    from flatout.errors import UsageError
    from flatout.report.layout import shorten_middle
    from flatout.trials.calibration import read_scored, score
    from flatout.units import factor, interval, percent

    scored = read_scored(folder)
    if not scored:
        raise UsageError(f"no trial with a measurement below {folder}: `flatout fix` makes some")
    whole = score(scored)
    by_remedy = {name: score([one for one in scored if one.remedy == name]) for name in {one.remedy for one in scored}}
    if json:
        trials = [{**asdict(one), "error": one.error, "inside": one.inside} for one in scored]
        remedies = {name: asdict(found) for name, found in sorted(by_remedy.items())}
        typer.echo(json_format.dumps({"all": asdict(whole), "remedies": remedies, "trials": trials}, indent=2))
        return
    where = shorten_middle(one_line(str(folder)), 36, "...")
    head = f"  {'remedy':24}{'trials':>7}{'median error':>14}{'90%':>8}{'inside':>9}{'bias':>8}"
    typer.echo(f"Predicted against measured: {whole.count} trials below {where}\n\n{head}")
    for name, found in [*sorted(by_remedy.items()), ("all", whole)]:
        typer.echo(
            f"  {name:24}{found.count:>7}{percent(found.median_error):>14}{percent(found.p90_error):>8}"
            f"{percent(found.coverage):>9}{factor(found.bias):>8}"
        )
    typer.echo(f"\n  {'predicted':24}{'measured':>10}   trial")
    for one in scored:
        mark = "" if one.inside else "  outside"
        typer.echo(
            f"  {interval(one.predicted):24}{factor(one.measured.factor):>10}   {one_line(one.title)[:40]}{mark}"[:80]
        )
