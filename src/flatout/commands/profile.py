"""``flatout profile``: record an unmodified training command and say where its time goes."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from flatout.runner import Outcome


def profile(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND...", help="The training command, just as you run it.", show_default=False),
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", metavar="N", help="End after N training steps.", show_default=False)
    ] = None,
    seconds: Annotated[
        str | None,
        typer.Option(
            "--seconds",
            metavar="TIME",
            help="End this long after the first step: 90, 90s, 5m. Default: 60s, longer if steps are slow.",
            show_default=False,
        ),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Record until the command ends by itself.")] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="The report as a GitHub-flavoured Markdown page.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="The report as JSON; the command's own output goes to standard error.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the report there instead of to standard output."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE if it exists.")] = False,
    runs_dir: Annotated[
        Path, typer.Option("--runs-dir", metavar="FOLDER", help="Where the run is recorded.", show_default=True)
    ] = Path(".flatout/runs"),
    trace: Annotated[
        bool,
        typer.Option("--trace/--no-trace", help="Trace three steps after the measured window (opens in Perfetto)."),
    ] = True,
    first_step_within: Annotated[
        str, typer.Option("--first-step-within", metavar="TIME", help="Give up when no training step was seen by then.")
    ] = "10m",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress lines.")] = False,
) -> None:
    """Record a training command and say where its time goes.

    The command runs unchanged: nothing in your files is edited. When enough was measured, the whole process tree is
    ended and the report is shown. Ctrl-C ends it earlier, with a report.

    Example: flatout profile --steps 200 -- python train.py --epochs 3
    """
    from flatout.report.writing import check_output, choose_form, write_report
    from flatout.runner import Bounds, record
    from flatout.units import parse_duration, parse_seconds

    form = choose_form(markdown=markdown, json=json)
    check_output(output, force=force)
    bounds = Bounds(
        steps=steps,
        seconds=parse_seconds(seconds, option="--seconds") if seconds is not None else None,
        full=full,
        first_step_within_s=parse_duration(first_step_within, option="--first-step-within"),
    )
    to_stdout = output is None and (json or markdown)
    outcome = record(command or [], runs_dir, bounds, quiet=quiet, stdout_to_stderr=to_stdout, trace=trace)
    _explain_failure(outcome)

    from flatout.diagnosis import diagnose
    from flatout.record import load_run

    if not quiet:
        print(file=sys.stderr)
    write_report(diagnose(load_run(outcome.run)), form, output, force=force)
    if outcome.stop in ("interrupted", "terminated"):
        raise typer.Exit(130 if outcome.stop == "interrupted" else 143)
    raise typer.Exit(outcome.exit_code or 0)


def _explain_failure(outcome: Outcome) -> None:
    """End with one clear line when there was no training step to look at.

    Raises:
        CommandError: no step was seen; it carries the command's own exit code where there is one.
    """
    if outcome.live.first_step_ns:
        return
    from flatout.errors import CommandError
    from flatout.runner.failure import explain

    message, exit_code = explain(outcome)
    shutil.rmtree(outcome.run, ignore_errors=True)  # there is nothing in it to look at
    raise CommandError(message, exit_code)
