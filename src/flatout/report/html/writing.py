"""Write a page, and say where it is and how large."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flatout.compare.comparison import Comparison
from flatout.errors import UsageError
from flatout.record import Run
from flatout.report.comparison import lines
from flatout.report.html.comparison_data import comparison_data
from flatout.report.html.page import page
from flatout.report.html.run_data import run_data
from flatout.report.json_report import diagnosis_to_json
from flatout.report.terminal import render
from flatout.report.writing import check_output, write_file
from flatout.results import Diagnosis
from flatout.units import size

# Of a page; one of a usual run has a fifth of it.
LARGEST = 2 << 20


def write_run(diagnosis: Diagnosis, run: Run | None, output: Path | None, *, force: bool) -> str:
    """Write the page of a run.

    Args:
        diagnosis: its report.
        run: its record; None: there is none, so that the page has no charts over time.
        output: the file; None: named after the run, in the working directory.
        force: overwrite a file.

    Returns:
        What to tell the user.

    Raises:
        UsageError: the file exists or cannot be written.
    """
    report = diagnosis_to_json(diagnosis)
    data: dict[str, Any] = {"report": report, "span": [0, 1], "steps": None, "series": [], "names": [], "lanes": []}
    data["notes"] = []
    if run is not None:
        data = run_data(run, report)
    return _write(
        f"flatout: {diagnosis.run_id}", "run.js", data, render(diagnosis).plain, output, diagnosis.run_id, force
    )


def write_comparison(comparison: Comparison, output: Path | None, *, force: bool) -> str:
    """Write the page of a comparison; arguments as of :func:`write_run`.

    Raises:
        UsageError: the file exists or cannot be written.
    """
    data, text = comparison_data(comparison), "\n".join(lines(comparison))
    return _write("flatout: comparison", "compare.js", data, text, output, "comparison", force)


def _write(
    title: str, script: str, data: dict[str, Any], text: str, output: Path | None, name: str, force: bool
) -> str:
    path = output or Path(f"{name}.html")
    if output is None and path.exists() and not force:
        raise UsageError(f"{path} exists; give another name with --output, or --force to overwrite it")
    check_output(path, force=force)
    encoded = page(title, script, data, text).encode("utf-8", "replace")
    assert len(encoded) <= LARGEST, f"a page of {len(encoded)} bytes was not thinned enough"
    write_file(path, encoded, force=force)
    return f"{path}\n  {size(len(encoded))}; open it in a browser: it needs no network"
