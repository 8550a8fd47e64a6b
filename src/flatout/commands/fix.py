"""``flatout fix``: try remedies on an unchanged training command, and prove what they give."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flatout.commands.options import (
    FIRST_STEP_WITHIN,
    FIXES_DIR,
    AsHtml,
    AsJson,
    Command,
    FixesDir,
    Force,
    PageFile,
    Quiet,
    seconds_option,
)
from flatout.units import parse_duration, parse_seconds

if TYPE_CHECKING:
    from flatout.trials.export import Export
    from flatout.trials.fix_options import Options
    from flatout.trials.fixing import Fixing
    from flatout.trials.journal import Journal
    from flatout.trials.locations import SettingLocations
    from flatout.trials.result import FixResult

Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="CLASS",
        help="Also keep what changes the training: numerics, optimisation or data. May be repeated.",
        show_default=False,
    ),
]
Budget = Annotated[str, typer.Option("--budget", metavar="TIME", help="Time for everything, such as 1h30m.")]
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="The command's YAML, JSON or TOML file: settings are changed in it."),
]
Locations = Annotated[
    list[str] | None,
    typer.Option(
        "--setting",
        metavar="SETTING=KEY",
        help="The key of --config that holds a setting, if its name does not tell. May be repeated.",
    ),
]
Staged = Annotated[
    str | None,
    typer.Option("--staged", metavar="REAL=COPY", help="A local copy of the data, as `flatout stage` makes it."),
]
StageTo = Annotated[
    Path | None,
    typer.Option("--stage-to", metavar="FOLDER", help="Where a copy of slow data may be made, on a fast disk."),
]

Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the last fix that was killed, of this command if one is given.")
]
_LIVE = "First try what can be switched within one running training. Default: where its start takes 10s or more."
Live = Annotated[bool | None, typer.Option("--live/--no-live", help=_LIVE, show_default=False)]


def fix(
    command: Command = None,
    budget: Budget = "10m",
    allow: Allow = None,
    seconds: Annotated[str | None, seconds_option("80 steps, 3s to 30s")] = None,
    first_step_within: Annotated[str | None, FIRST_STEP_WITHIN] = None,
    config: Config = None,
    locations: Locations = None,
    staged: Staged = None,
    stage_to: StageTo = None,
    resume: Resume = False,
    live: Live = None,
    as_json: AsJson = False,
    as_html: AsHtml = False,
    output: PageFile = None,
    force: Force = False,
    fixes_dir: FixesDir = FIXES_DIR,
    quiet: Quiet = False,
) -> None:
    """Try remedies one at a time, and prove what they give.

    First the command is measured as it is. Then each remedy that the diagnosis suggests is applied without changing
    your files, and measured in pairs with a run without it. A remedy is kept if it is faster beyond noise and trains
    the same; finally all that was kept is measured together against the original training.

    Example: flatout fix --budget 10m -- python train.py
    """
    from flatout.report.writing import page_file
    from flatout.runner.command import check_command
    from flatout.trials import journal as journals
    from flatout.trials.export import write_kept, write_plans
    from flatout.trials.fix_options import Options
    from flatout.trials.fixing import clean
    from flatout.trials.locations import find_locations
    from flatout.trials.sweeper import Sweeper

    resumed = journals.resume(fixes_dir, command or []) if resume else None
    words = check_command(resumed.command if resumed else command, "flatout fix")
    page = page_file(output, "fix.html", as_json=as_json, as_html=as_html, force=force)
    options = Options(
        allowed=read_allowed(allow or []),
        budget_s=read_budget(budget),
        seconds=_time(parse_seconds, "--seconds", seconds),
        staged=_staged(staged),
        stage_to=stage_to,
        first_step_within_s=_time(parse_duration, "--first-step-within", first_step_within),
        live=live,
    )
    found = find_locations(words, config, locations or [])
    journal = resumed or journals.begin(fixes_dir, words)
    sweeper = Sweeper(journal.folder, only_scratch=True)
    try:
        fixed = _fixing(words, journal, found, options, quiet).run()
        files = write_kept(fixed, found, journal.folder), write_plans(fixed, found, journal.folder)
    finally:
        clean(journal.folder)
        sweeper.release()
        journals.remove_unmeasured(journal)
    _show(fixed, files, as_json, page, force)


def _fixing(words: tuple[str, ...], journal: Journal, found: SettingLocations, options: Options, quiet: bool) -> Fixing:
    """The fix, with what the latest profile of the command proposed."""
    from flatout.runner import Bounds
    from flatout.trials.earlier_profile import latest_profile
    from flatout.trials.fixing import Fixing
    from flatout.trials.isolation import find_isolation
    from flatout.trials.progress import ProgressLog
    from flatout.trials.trial_run import TrialSetup

    folder = journal.folder
    setup = TrialSetup(words, folder, folder / "runs", Bounds(), find_isolation(folder), locations=found)
    return Fixing(setup, options, journal, ProgressLog(quiet), profiled=latest_profile(words))


def _show(
    fixed: FixResult,
    files: tuple[Export | None, Mapping[str, Export]],
    as_json: bool,
    page: Path | None,
    force: bool,
) -> None:
    """Print the result; with a page, write it and print where it is as well."""
    from flatout.report.fix import lines, to_dict

    typer.echo(json.dumps(to_dict(fixed, *files), indent=2) if as_json else "\n".join(lines(fixed, *files)))
    if page is not None:
        from flatout.report.html.writing import write_fix

        typer.echo("\n" + write_fix(fixed, files, page, force=force))
    if fixed.interrupted:
        raise typer.Exit(fixed.interrupted.exit_code)


def _time(parse: Callable[..., float], option: str, text: str | None) -> float | None:
    """What ``parse`` makes of an option's text, in seconds; None where the option was not given."""
    return None if text is None else parse(text, option=option)


def read_budget(text: str) -> float:
    """Read --budget, in seconds.

    Raises:
        UsageError: not a time above 0.
    """
    import math

    from flatout.errors import UsageError

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
    if not real or not copy:
        raise UsageError(f"--staged {text!r}: write REAL=COPY, the folder of the data and that of the copy")
    for folder in (real, copy):
        if not Path(folder).is_dir():
            raise UsageError(f"--staged {text!r}: {folder!r} is no folder; write REAL=COPY")
    return f"{Path(real).absolute()}={Path(copy).absolute()}"


def read_allowed(names: list[str]) -> frozenset[str]:
    """The semantic classes that may be kept.

    Raises:
        UsageError: unknown class.
    """
    from flatout.errors import UsageError
    from flatout.remedies.proposal import DATA, IDENTICAL, NUMERICS, OPTIMISATION

    classes = (NUMERICS, OPTIMISATION, DATA)
    for name in names:
        if name not in classes:
            raise UsageError(f"--allow {name!r}: what may change is {', '.join(classes)}; leave it out for nothing")
    return frozenset({IDENTICAL, *names})
