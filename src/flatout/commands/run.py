"""``flatout run``: an unchanged training with settings put in, such as ``flatout fix`` has proved."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer


def run(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND...", help="The training command, just as you run it.", show_default=False),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting; again for more.", show_default=False),
    ] = None,
    names: Annotated[bool, typer.Option("--list", help="List the settings, and end.")] = False,
) -> None:
    """Run a training with settings put in, unrecorded.

    Your files stay as they are. What could not be set is told at the end, and never stops the training.

    Example: flatout run --set num_workers=4 --set persistent_workers=true -- python train.py
    """
    from flatout.errors import CommandError
    from flatout.runner.command import check_command, injecting_environment
    from flatout.trials.settings import list_settings, read_settings

    if names:
        typer.echo("\n".join(list_settings()))
        return
    check_command(command or [])
    assert command, "checked just now"
    environment = injecting_environment(read_settings(settings or []))
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        raise CommandError(f"cannot start {Path(command[0]).name!r}: {error.strerror}", 126) from None
