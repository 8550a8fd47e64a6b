"""``flatout compare``: which of two trainings is faster, and by how much."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flatout.commands.options import RUNS_DIR, AsHtml, AsJson, Force, PageFile, Quiet, RunsDir, seconds_option

if TYPE_CHECKING:
    from flatout.compare.comparison import Comparison
    from flatout.runner import Bounds


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A recorded run (id, folder, latest), or a command in quotes.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Of the same kind as A.")],
    pairs: Annotated[
        int, typer.Option("--pairs", metavar="N", min=2, max=100, help="Run two commands N times each, in turn.")
    ] = 3,
    steps: Annotated[
        int | None, typer.Option("--steps", metavar="N", help="End each run of a command after N training steps.")
    ] = None,
    seconds: Annotated[str | None, seconds_option("20s")] = None,
    fail_if_slower: Annotated[
        str | None,
        typer.Option("--fail-if-slower", metavar="SHARE", help="Exit with 1 if B is slower beyond doubt by more: 5%."),
    ] = None,
    as_json: AsJson = False,
    as_html: AsHtml = False,
    output: PageFile = None,
    force: Force = False,
    runs_dir: RunsDir = RUNS_DIR,
    quiet: Quiet = False,
) -> None:
    """Compare two trainings: which is faster, and by how much.

    Two recorded runs are read as they are. Two commands give the surer answer: they are run in turn, A B, B A, A B,
    each for 20 s unless told otherwise. Rates count samples, waits included, so that different batch sizes compare.

    Example: flatout compare "python train.py" "python train.py --workers 4"
    """
    from flatout.report.comparison import lines, to_dict
    from flatout.report.writing import page_file

    page = page_file(output, "comparison.html", as_json=as_json, as_html=as_html, force=force)
    allowed = _share(fail_if_slower) if fail_if_slower is not None else None
    comparison = _compare(a, b, pairs, _bounds(steps, seconds), runs_dir, quiet, allowed)
    if page is not None:
        from flatout.report.html.writing import write_comparison

        typer.echo(write_comparison(comparison, page, force=force))
    else:
        typer.echo(json.dumps(to_dict(comparison), indent=2) if as_json else "\n".join(lines(comparison)))
    if comparison.fails:
        raise typer.Exit(1)
    if comparison.interrupted:
        raise typer.Exit(comparison.interrupted.exit_code)


def _compare(
    a: str, b: str, pairs: int, bounds: Bounds | None, runs_dir: Path, quiet: bool, allowed: float | None
) -> Comparison:
    from flatout.compare.comparison import Comparison
    from flatout.compare.evened import evened
    from flatout.compare.in_turn import DEFAULT_BOUNDS, run_pairs
    from flatout.compare.ratio import ratio_of
    from flatout.compare.sides import read_side
    from flatout.compare.speed import alike, measure
    from flatout.errors import CommandError, UsageError
    from flatout.units import counted

    sides = read_side(a, runs_dir), read_side(b, runs_dir)
    if isinstance(sides[0], Path) and isinstance(sides[1], Path):
        if bounds is not None:
            raise UsageError("--steps and --seconds bound commands; recorded runs are compared as they are")
        runs = evened(*([speed] for speed in alike(measure(sides[0]), measure(sides[1]))))
        return Comparison(*runs, ratio_of(*runs), allowed)
    if isinstance(sides[0], Path) or isinstance(sides[1], Path):
        raise UsageError(f"{a!r} and {b!r} are a recorded run and a command: give two of one kind")
    trials = run_pairs(sides[0], sides[1], pairs, bounds or DEFAULT_BOUNDS, runs_dir, quiet)
    measured = trials.pairs()
    if len(measured) < 2:
        message = f"ended after {counted(len(measured), 'complete pair')} of runs: a comparison needs two"
        raise CommandError(message, trials.interrupted.exit_code) if trials.interrupted else UsageError(message)
    runs = evened(trials.a, trials.b)
    return Comparison(*runs, ratio_of(*runs), allowed, trials.interrupted)


def _bounds(steps: int | None, seconds: str | None) -> Bounds | None:
    if steps is None and seconds is None:
        return None
    from flatout.runner import Bounds
    from flatout.units import parse_seconds

    return Bounds(steps=steps, seconds=parse_seconds(seconds, option="--seconds") if seconds is not None else None)


def _share(text: str) -> float:
    """Read "5%" or "0.05".

    Raises:
        UsageError: neither a factor nor a percentage, or not between 0 and 1.
    """
    from flatout.errors import UsageError

    try:
        value = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise UsageError(f"--fail-if-slower is {text!r}, but must be a share from 0% to below 100%, such as 5%")
    return value
