"""``flatout plan``: how much of a training fits into a deadline."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from flatout.commands.options import RUNS_DIR, AsJson, RunsDir


def plan(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id or folder, or latest.")],
    deadline: Annotated[str, typer.Option("--deadline", metavar="TIME", help="The limit: 11m, 90s.")],
    epochs: Annotated[int, typer.Option("--epochs", metavar="N", help="Epochs of each fold.")],
    folds: Annotated[int, typer.Option("--folds", metavar="N", help="Folds.")] = 1,
    steps_per_epoch: Annotated[
        int | None,
        typer.Option("--steps-per-epoch", metavar="N", help="Default: of the recorded epoch.", show_default=False),
    ] = None,
    reserve: Annotated[str, typer.Option("--reserve", metavar="TIME", help="Time for the last prediction.")] = "0s",
    price: Annotated[
        str | None, typer.Option("--price", metavar="PRICE", help="Of the machine: 1.20/h.", show_default=False)
    ] = None,
    as_json: AsJson = False,
    runs_dir: RunsDir = RUNS_DIR,
) -> None:
    """Plan folds and epochs into a deadline, from a recorded run.

    Example: flatout plan --deadline 11m --folds 5 --epochs 30 latest
    """
    from flatout.plans.costs import measure_costs
    from flatout.plans.scenarios import project
    from flatout.record import find_run, load_run
    from flatout.report.plan import lines, to_dict
    from flatout.units import check_count, parse_duration

    for option, count in (("--epochs", epochs), ("--folds", folds), ("--steps-per-epoch", steps_per_epoch)):
        if count is not None:
            check_count(count, option=option)
    deadline_s = parse_duration(deadline, option="--deadline")
    reserve_s = 0.0 if reserve == "0s" else parse_duration(reserve, option="--reserve")
    per_hour = None if price is None else _per_hour(price)
    costs = measure_costs(load_run(find_run(run, runs_dir)), steps_per_epoch)
    scenarios = project(costs, deadline_s, folds, epochs, reserve_s, per_hour)
    told = costs, scenarios, deadline_s, reserve_s
    typer.echo(json.dumps(to_dict(*told), indent=2) if as_json else "\n".join(lines(*told)))


def _per_hour(text: str) -> float:
    from flatout.errors import UsageError

    try:
        value = float(text.removesuffix("/h"))
    except ValueError:
        value = -1.0
    if not text.endswith("/h") or not 0 <= value < float("inf"):
        raise UsageError(f"--price {text}: give a price an hour, such as 1.20/h")
    return value
