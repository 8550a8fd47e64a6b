"""``flatout trace``: a recorded run for the trace viewers."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from flatout.commands.options import RUNS_DIR, Force, RunsDir
from flatout.errors import UsageError


class Format(StrEnum):
    """The formats of --format."""

    PERFETTO = "perfetto"
    CHROME = "chrome"
    SPEEDSCOPE = "speedscope"


SUFFIXES = {Format.PERFETTO: (".pftrace", ".zip"), Format.CHROME: (".json",), Format.SPEEDSCOPE: (".json",)}
TraceFile = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Where to write. Default: the run's id, with a suffix for the format."
    ),
]


def trace(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN",
            help="Ids or folders of runs, such as one a machine. Without it: the run that started last.",
            show_default=False,
        ),
    ] = None,
    output: TraceFile = None,
    format: Annotated[Format, typer.Option("--format", help="Which viewer it is for.")] = Format.PERFETTO,
    steps: Annotated[
        str | None, typer.Option("--steps", metavar="FIRST:LAST", help="Only the time of these training steps.")
    ] = None,
    ranks: Annotated[
        str | None, typer.Option("--ranks", metavar="RANKS", help="Only these ranks and their workers, such as 0,17.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Also write what would be larger than 500 MB.")] = False,
    force: Force = False,
    runs_dir: RunsDir = RUNS_DIR,
) -> None:
    """Write a saved run for Perfetto and other trace viewers.

    Every step, worker and batch lies on one time axis. In ui.perfetto.dev, which keeps the file in your browser, a
    step of the training thread opens into its phases, and an arrow leads from the fetch of a batch to the wait that it
    ended. Where the run has a kernel trace of torch's profiler, both go into one .zip, which opens as one trace.
    --format speedscope writes the sampled stacks, --format chrome the JSON that other viewers read.

    Example: flatout trace latest --steps 100:120 -o steps.pftrace
    """
    from flatout.export.writing import Request, write_trace
    from flatout.record import find_run, load_run
    from flatout.report.trace import lines
    from flatout.report.writing import check_output

    request = Request(format.value, _steps(steps), _ranks(ranks), full)
    loaded = [load_run(find_run(run, runs_dir)) for run in (runs or (None,))]
    if output is not None and output.suffix not in SUFFIXES[format]:
        allowed = " or ".join(SUFFIXES[format])
        raise UsageError(f"--output {output}: --format {format} writes {allowed}; give a name that ends so")
    check_output(output, force=force)
    written = write_trace(loaded, request, output, force=force)
    typer.echo("\n".join(lines(written)))


def _steps(text: str | None) -> tuple[int, int] | None:
    """Read --steps.

    Raises:
        UsageError: not two numbers from 0 on, the second not below the first.
    """
    if text is None:
        return None
    first, separator, last = text.partition(":")
    if not (separator and _is_number(first) and _is_number(last)) or int(last) < int(first):
        raise UsageError(f"--steps {text}: give the first and the last step, counted from 0, such as --steps 100:120")
    return int(first), int(last)


def _ranks(text: str | None) -> frozenset[int] | None:
    """Read --ranks.

    Raises:
        UsageError: not numbers from 0 on, separated by commas.
    """
    if text is None:
        return None
    if not all(map(_is_number, text.split(","))):
        raise UsageError(f"--ranks {text}: give ranks from 0 on, separated by commas, such as --ranks 0,17")
    return frozenset(map(int, text.split(",")))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
