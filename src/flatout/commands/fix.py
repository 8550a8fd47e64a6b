"""``flatout fix``: try remedies on an unchanged training command, and prove what they give."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated

import typer


def fix(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND...", help="The training command, just as you run it.", show_default=False),
    ] = None,
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help="For everything: 10m, 1h30m.")] = "10m",
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="CLASS",
            help="Also keep what changes the training: numerics, optimisation or data. Again for more.",
            show_default=False,
        ),
    ] = None,
    seconds: Annotated[
        str | None,
        typer.Option(
            "--seconds", metavar="TIME", help="Of each run. Default: 80 steps, 3s to 30s.", show_default=False
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="The command's YAML, JSON or TOML file: settings are changed in it."
        ),
    ] = None,
    knobs: Annotated[
        list[str] | None,
        typer.Option("--knob", metavar="SETTING=KEY", help="Where a setting is, if its name does not tell."),
    ] = None,
    staged: Annotated[
        str | None,
        typer.Option("--staged", metavar="REAL=COPY", help="A local copy of the data, as `flatout stage` makes it."),
    ] = None,
    stage_to: Annotated[
        Path | None,
        typer.Option("--stage-to", metavar="FOLDER", help="Where a copy of slow data may be made, on a fast disk."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the last fix of this command, which was killed.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object for scripts.")] = False,
    folder: Annotated[
        Path, typer.Option("--folder", metavar="FOLDER", help="Where journals are kept.", show_default=True)
    ] = Path(".flatout/fixes"),
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress lines.")] = False,
) -> None:
    """Try remedies one at a time, and prove what they give.

    The command is measured as it is. Then each remedy that the diagnosis calls for is put into it without changing
    your files, and measured in pairs with the run without it. Kept is what gains beyond noise and trains the same;
    at the end, all that was kept is measured against the training as it was.

    Example: flatout fix --budget 10m -- python train.py
    """
    from flatout.report.fix import lines, to_dict
    from flatout.runner import Bounds
    from flatout.runner.command import check_command
    from flatout.trials.export import write_kept, write_plans
    from flatout.trials.fixing import Fixing, Options, clean
    from flatout.trials.isolation import find_isolation
    from flatout.trials.journal import begin
    from flatout.trials.journal import resume as go_on
    from flatout.trials.locations import find_locations
    from flatout.trials.progress import ProgressLog
    from flatout.trials.trial_run import TrialSetup
    from flatout.units import parse_seconds

    check_command(command or [])
    options = Options(
        allowed=_allowed(allow or []),
        budget_s=_budget(budget),
        seconds=parse_seconds(seconds, option="--seconds") if seconds is not None else None,
        staged=_staged(staged),
        stage_to=stage_to,
    )
    words = tuple(command or ())
    locations = find_locations(words, config, knobs or [])
    journal = go_on(folder, words) if resume else begin(folder, words)
    plan = TrialSetup(
        words, journal.folder, journal.folder / "runs", Bounds(), find_isolation(journal.folder), locations=locations
    )
    try:
        fixed = Fixing(plan, options, journal, ProgressLog(quiet)).run()
        keep, plans = write_kept(fixed, locations, journal.folder), write_plans(fixed, locations, journal.folder)
    finally:
        clean(journal.folder)
    typer.echo(
        json_format.dumps(to_dict(fixed, keep, plans), indent=2) if json else "\n".join(lines(fixed, keep, plans))
    )
    if fixed.interrupted:
        raise typer.Exit(130)


def _budget(text: str) -> float:
    """Seconds.

    Raises:
        UsageError: it is no time above 0.
    """
    import math

    from flatout.errors import UsageError
    from flatout.units import parse_seconds

    seconds = parse_seconds(text, option="--budget")
    if not (math.isfinite(seconds) and seconds > 0):
        raise UsageError(f"--budget is {text}, but must be a time above 0, such as 10m or 1h30m")
    return seconds


def _staged(text: str | None) -> str | None:
    """Check REAL=COPY.

    Raises:
        UsageError: one of them is no folder.
    """
    from flatout.errors import UsageError

    if text is None:
        return None
    real, _, copy = text.partition("=")
    for folder in (real, copy):
        if not folder or not Path(folder).is_dir():
            raise UsageError(f"--staged {text!r}: write REAL=COPY; {folder!r} is no folder")
    return f"{Path(real).absolute()}={Path(copy).absolute()}"


def _allowed(names: list[str]) -> frozenset[str]:
    """The classes that may be kept.

    Raises:
        UsageError: one that there is not.
    """
    from flatout.errors import UsageError
    from flatout.remedies.proposal import DATA, IDENTICAL, NUMERICS, OPTIMISATION

    classes = (NUMERICS, OPTIMISATION, DATA)
    for name in names:
        if name not in classes:
            raise UsageError(f"--allow {name!r}: what may change is {', '.join(classes)}; leave it out for nothing")
    return frozenset({IDENTICAL, *names})
