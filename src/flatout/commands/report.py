"""``flatout report``: render a saved run again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flatout.commands.options import RUNS_DIR, AsHtml, AsJson, Force, Markdown, Output, RunsDir

if TYPE_CHECKING:
    from flatout.record import Run
    from flatout.results import Diagnosis


def report(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="A run's id, its folder, or a report saved with --json; with --html also a folder of `flatout train`. "
            "Without it: the run that started last.",
            show_default=False,
        ),
    ] = None,
    markdown: Markdown = False,
    as_json: AsJson = False,
    as_html: AsHtml = False,
    output: Output = None,
    force: Force = False,
    runs_dir: RunsDir = RUNS_DIR,
) -> None:
    """Show a saved run's report again.

    The diagnosis is made again from the run's folder, which may come from another machine. The schema of --json is
    docs/schema/report.schema.json. --html shows the same, and what each process did over time, in one file for a
    browser.

    Example: flatout report latest --markdown --output report.md
    """
    from flatout.report.writing import Form, check_output, choose_form, page_file, write_report

    form = choose_form(markdown=markdown, as_json=as_json, as_html=as_html)
    check_output(output, force=force)
    if form is Form.HTML and run is not None and _trained(Path(run), output, force):
        return
    diagnosis, record = _diagnosis(run, runs_dir)
    if form is Form.HTML:
        from flatout.report.html.writing import write_run

        path = page_file(
            output, re.sub(r"[^\w.-]", "_", diagnosis.run_id) + ".html", as_json=False, as_html=True, force=force
        )
        assert path is not None, "--html was given"
        typer.echo(write_run(diagnosis, record, path, force=force))
        return
    write_report(diagnosis, form, output, force=force)


def _trained(folder: Path, output: Path | None, force: bool) -> bool:
    """Write the page of a training by a recipe; False: the folder is none."""
    from flatout.formats.training_folder import is_training, read_training
    from flatout.report.writing import page_file

    if not is_training(folder):
        return False
    from flatout.report.html.writing import write_training

    path = page_file(output, f"{folder.resolve().name}.html", as_json=False, as_html=True, force=force)
    assert path is not None, "--html was given"
    typer.echo(write_training(read_training(folder), path, force=force))
    return True


def _diagnosis(run: str | None, runs_dir: Path) -> tuple[Diagnosis, Run | None]:
    """Read a saved report, which has no record; or diagnose a run's folder."""
    if run is not None and run.endswith(".json") and Path(run).is_file():
        from flatout.report.json_report import read_report

        return read_report(Path(run)), None
    from flatout.diagnosis import diagnose
    from flatout.record import find_run, load_run

    record = load_run(find_run(run, runs_dir))
    return diagnose(record), record
