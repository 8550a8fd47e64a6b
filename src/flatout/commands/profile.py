"""``flatout profile``: record an unmodified training command and say where its time goes."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from flatout.commands.options import (
    FIRST_STEP_WITHIN,
    RUNS_DIR,
    Command,
    Force,
    Live,
    Markdown,
    Output,
    Quiet,
    RunsDir,
    seconds_option,
)

if TYPE_CHECKING:
    from flatout.runner import Outcome

Trace = Annotated[
    bool, typer.Option("--trace/--no-trace", help="Trace three steps after the measured window (opens in Perfetto).")
]
Experiments = Annotated[
    bool,
    typer.Option(
        "--experiments/--no-experiments",
        help="After the window, measure what slows a step, and step and loader alone: some 10 s, besides the trace.",
    ),
]
FirstStepWithin = Annotated[str, FIRST_STEP_WITHIN]


def profile(
    command: Command = None,
    steps: Annotated[
        int | None, typer.Option("--steps", metavar="N", help="End after N training steps.", show_default=False)
    ] = None,
    seconds: Annotated[str | None, seconds_option("60s, longer if steps are slow")] = None,
    full: Annotated[bool, typer.Option("--full", help="Record until the command ends by itself.")] = False,
    markdown: Markdown = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON; the command's own output goes to standard error.")
    ] = False,
    output: Output = None,
    force: Force = False,
    runs_dir: RunsDir = RUNS_DIR,
    trace: Trace = True,
    experiments: Experiments = True,
    first_step_within: FirstStepWithin = "10m",
    live: Live = False,
    quiet: Quiet = False,
) -> None:
    """Record a training command and show where its time goes.

    The command runs unchanged: nothing in your files is edited. When enough was measured, the whole process tree is
    ended and the report is shown. Ctrl-C ends it earlier, with a report.

    Example: flatout profile --steps 200 -- python train.py --epochs 3
    """
    from flatout.live.companion import live_page
    from flatout.report.writing import check_output, choose_form, write_report
    from flatout.runner import Bounds, record
    from flatout.units import parse_duration, parse_seconds

    form = choose_form(markdown=markdown, as_json=as_json)
    check_output(output, force=force)
    bounds = Bounds(
        steps=steps,
        seconds=parse_seconds(seconds, option="--seconds", endless="; --full records to the end")
        if seconds is not None
        else None,
        full=full,
        first_step_within_s=parse_duration(first_step_within, option="--first-step-within"),
    )
    to_stdout = output is None and (as_json or markdown)
    with live_page() as page:
        started = page.start if live else lambda run: None
        outcome = record(
            command or [], runs_dir, bounds,
            quiet=quiet, stdout_to_stderr=to_stdout, trace=trace, experiments=experiments, started=started,
        )  # fmt: skip
    _explain_failure(outcome)

    from flatout.diagnosis import diagnose
    from flatout.record import load_run

    if not quiet:
        print(file=sys.stderr)
    write_report(diagnose(load_run(outcome.run)), form, output, force=force)
    raise typer.Exit(outcome.ended_with or outcome.exit_code or 0)


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
    shutil.rmtree(outcome.run, ignore_errors=True)  # the record is empty
    raise CommandError(message, exit_code)
