"""``flatout apply``: run an unchanged training with settings applied, such as those that ``flatout fix`` proved."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from flatout.commands.options import Command


def apply(
    command: Command = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting. May be repeated.", show_default=False),
    ] = None,
    names: Annotated[bool, typer.Option("--list", help="List the settings, and end.")] = False,
) -> None:
    """Run a training with settings applied, without recording it.

    Your files stay as they are. At the end it says what was set, what could not be, and what nothing took; none of it
    stops the training.

    Example: flatout apply --set num_workers=4 -- python train.py
    """
    from flatout.errors import CommandError
    from flatout.probe.contract import APPLIED_VARIABLE
    from flatout.runner.command import check_command, injecting_environment, with_probe
    from flatout.trials.settings import list_settings, read_settings

    if names:
        typer.echo("\n".join(list_settings()))
        return
    words = with_probe(check_command(command, "flatout apply"))
    environment = injecting_environment(read_settings(settings or []))
    environment[APPLIED_VARIABLE] = str(os.getpid())  # the command takes this process over
    try:
        os.execvpe(words[0], words, environment)
    except OSError as error:
        raise CommandError(f"cannot start {Path(words[0]).name!r}: {error.strerror}", 126) from None
