"""``flatout try``: judge a change that somebody proposes, in pairs of runs with the unchanged command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flatout.commands.options import FIRST_STEP_WITHIN, AsJson, Command, Quiet, seconds_option

if TYPE_CHECKING:
    from flatout.runner import Bounds
    from flatout.trials.candidates import Given
    from flatout.trials.patches import Patch
    from flatout.trials.trying import TryOptions

NOT_PROVED = 1
TRY_DIR = Path(".flatout/try")
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="As `flatout apply --list` names them.", show_default=False),
]
Variables = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME=VALUE", help="An environment variable.", show_default=False),
]
Keys = Annotated[
    list[str] | None,
    typer.Option(
        "--config-key", metavar="KEY=VALUE", help="A key of the config file that the command reads.", show_default=False
    ),
]
Commands = Annotated[
    list[str] | None,
    typer.Option("--command", metavar="COMMAND", help="Another command, in quotes.", show_default=False),
]


def try_change(
    command: Command = None,
    patches: Annotated[
        list[str] | None,
        typer.Option(
            "--patch", metavar="FILE", help="Of `git diff` or `diff -u`; -: standard input.", show_default=False
        ),
    ] = None,
    settings: Settings = None,
    variables: Variables = None,
    keys: Keys = None,
    commands: Commands = None,
    together: Annotated[bool, typer.Option("--together", help="All of these are one candidate.")] = False,
    allow: Annotated[
        str | None,
        typer.Option("--allow", metavar="CLASS", help="What may change: numerics, data or optimisation."),
    ] = None,
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help="Time for everything.")] = "5m",
    steps: Annotated[
        int | None, typer.Option("--steps", metavar="N", min=12, help="End each run after N training steps.")
    ] = None,
    seconds: Annotated[str | None, seconds_option("80 steps, 3s to 30s")] = None,
    first_step_within: Annotated[str | None, FIRST_STEP_WITHIN] = None,
    as_json: AsJson = False,
    folder: Annotated[
        Path, typer.Option("--work-dir", metavar="FOLDER", help="Where runs are made; removed afterwards.")
    ] = TRY_DIR,
    quiet: Quiet = False,
) -> None:
    """Judge a change: is it faster, and does it train the same?

    The change is made in a private view of the disks, your files stay as they are. It is measured in pairs with the
    unchanged command, and the losses are compared. Each of --patch, --set, --env, --config-key and --command is a
    candidate of its own; several share the runs without them, and the slower half is left out after each round.
    Exit code 0: proved faster, and it trains the same. 1: it is not. 2: the change cannot be tried.

    Example: flatout try --patch change.diff -- python train.py

    The edit in the working tree: git diff | flatout try --patch - -- python train.py

    The best of three: flatout try --set num_workers=2 --set num_workers=4 --env OMP_NUM_THREADS=1 -- python train.py
    """
    from flatout.commands.fix import read_allowed, read_budget
    from flatout.runner.command import check_command
    from flatout.trials.candidates import Given
    from flatout.trials.losses import ALLOWED
    from flatout.trials.trying import TryOptions
    from flatout.units import parse_duration

    words = check_command(command, "flatout try")
    given = Given(_patches(patches or []), settings or (), variables or (), keys or (), commands or (), together)
    options = TryOptions(
        semantic_class=max(read_allowed([allow] if allow else []), key=list(ALLOWED).index),
        budget_s=read_budget(budget),
        bounds=_bounds(steps, seconds),
        first_step_within_s=parse_duration(first_step_within, option="--first-step-within")
        if first_step_within is not None
        else None,
    )
    _try(words, given, options, folder, as_json, quiet)


# untested: only by serial tests, which run without coverage.py
def _try(words: tuple[str, ...], given: Given, options: TryOptions, folder: Path, as_json: bool, quiet: bool) -> None:
    from flatout.report.trying import lines, to_dict
    from flatout.trials.attempt import attempt

    tried = attempt(words, given, options, folder, quiet)
    typer.echo(json.dumps(to_dict(tried), indent=2) if as_json else "\n".join(lines(tried)))
    if tried.interrupted:
        raise typer.Exit(tried.interrupted.exit_code)
    if not tried.proved:
        raise typer.Exit(NOT_PROVED)


# untested: only by serial tests, which run without coverage.py
def _patches(names: list[str]) -> list[Patch]:
    """Read them all.

    Raises:
        UsageError: one cannot be read, or standard input is named twice.
    """
    import sys

    from flatout.errors import UsageError
    from flatout.trials.patches import Patch

    if names.count("-") > 1:
        raise UsageError("--patch - is given twice: standard input can be read once")
    return [Patch.read(name, sys.stdin.buffer.read() if name == "-" else None) for name in names]


# untested: only by serial tests, which run without coverage.py
def _bounds(steps: int | None, seconds: str | None) -> Bounds | None:
    if steps is None and seconds is None:
        return None
    from flatout.runner import Bounds
    from flatout.units import parse_seconds

    return Bounds(steps=steps, seconds=parse_seconds(seconds, option="--seconds") if seconds is not None else None)
