"""``flatout batch-size``: where samples/s stop growing with the batch, and what memory allows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flatout.commands.options import FIRST_STEP_WITHIN, AsJson, Command, Quiet, seconds_option

if TYPE_CHECKING:
    from flatout.trials.batch_finding import SizeOptions

WORK_DIR = Path(".flatout/batch-size")


def batch_size(
    command: Command = None,
    least: Annotated[int, typer.Option("--least", metavar="N", min=1, help="Smallest batch size.")] = 1,
    most: Annotated[
        int | None, typer.Option("--most", metavar="N", min=1, help="Largest batch size.", show_default=False)
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            "--lr-rule",
            metavar="RULE",
            help="Of the learning rate: linear or sqrt. Default: by the optimizer.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help="Time for everything.")] = "5m",
    seconds: Annotated[str | None, seconds_option("80 steps, 3s to 30s, and 12 steps at least")] = None,
    first_step_within: Annotated[str | None, FIRST_STEP_WITHIN] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="The command's YAML, JSON or TOML file with the batch size."),
    ] = None,
    locations: Annotated[
        list[str] | None,
        typer.Option(
            "--setting",
            metavar="SETTING=KEY",
            help="The option, or the key of --config, that holds a setting: batch_size=--bs.",
        ),
    ] = None,
    as_json: AsJson = False,
    folder: Annotated[
        Path, typer.Option("--work-dir", metavar="FOLDER", help="Where runs are made; removed afterwards.")
    ] = WORK_DIR,
    quiet: Quiet = False,
) -> None:
    """Find the batch size beyond which the training gets no faster.

    The unchanged command runs for a short time at its own batch size, at twice that, and so on, until samples/s stop
    growing or memory ends; sizes that are close are measured again, in turn. Your files stay as they are. A batch size
    also changes what is learnt: the learning rate is scaled by a rule that is named, and steps per epoch are shown.

    Example: flatout batch-size -- python train.py

    With limits: flatout batch-size --most 512 --budget 10m -- python train.py --batch-size 64
    """
    from flatout.report.batch_size import lines, to_dict
    from flatout.runner.command import check_command
    from flatout.trials.batch_attempt import find_batch_size
    from flatout.trials.locations import find_locations

    words = check_command(command, "flatout batch-size")
    options = _options(least, most, rule, budget, seconds, first_step_within)
    found = find_batch_size(find_locations(words, config, locations or []), options, folder, quiet)
    typer.echo(json.dumps(to_dict(found), indent=2) if as_json else "\n".join(lines(found)))
    if found.interrupted:
        raise typer.Exit(found.interrupted.exit_code)


def _options(
    least: int, most: int | None, rule: str | None, budget: str, seconds: str | None, first_step_within: str | None
) -> SizeOptions:
    """The limits, as read.

    Raises:
        UsageError: a value is not usable.
    """
    from flatout.commands.fix import read_budget
    from flatout.errors import UsageError
    from flatout.predict.learning_rate import RULES
    from flatout.runner import Bounds
    from flatout.trials.batch_finding import SizeOptions
    from flatout.units import check_count, parse_duration, parse_seconds

    check_count(least, option="--least")
    if most is not None:
        check_count(most, option="--most")
        if most < least:
            raise UsageError(f"--most is {most}, below --least, {least}: give sizes in order")
    if rule is not None and rule not in RULES:
        raise UsageError(
            f"--lr-rule {rule!r}: there are {' and '.join(RULES)}; leave it out to choose by the optimizer"
        )
    return SizeOptions(
        budget_s=read_budget(budget),
        least=least,
        most=most,
        bounds=Bounds(seconds=parse_seconds(seconds, option="--seconds")) if seconds is not None else None,
        first_step_within_s=parse_duration(first_step_within, option="--first-step-within")
        if first_step_within is not None
        else None,
        rule=rule,
    )
