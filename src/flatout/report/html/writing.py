"""Write a page, and say where it is and how large."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flatout.compare.comparison import Comparison
from flatout.errors import UsageError
from flatout.formats.training_folder import TrainingFolder
from flatout.record import Run
from flatout.report.comparison import lines as comparison_lines
from flatout.report.fix import OUTCOMES, to_dict
from flatout.report.fix import lines as fix_lines
from flatout.report.html.comparison_data import comparison_data
from flatout.report.html.page import page
from flatout.report.html.run_data import run_data
from flatout.report.html.staging_data import staging_data
from flatout.report.html.training_data import text_lines, training_data
from flatout.report.json_report import diagnosis_to_json
from flatout.report.outline import CLASS_MEANING, confidence_in_words
from flatout.report.terminal import render
from flatout.report.writing import write_file
from flatout.results import Diagnosis
from flatout.stage.pace import Pace
from flatout.trials.export import Export
from flatout.trials.result import FixResult
from flatout.units import size

# Of a page; one of a usual run has a fifth of it.
LARGEST = 2 << 20


def write_run(diagnosis: Diagnosis, run: Run | None, path: Path, *, force: bool) -> str:
    """Write the page of a run.

    Args:
        diagnosis: its report.
        run: its record; None: there is none, so that the page has no charts over time.
        path: the file.
        force: overwrite a file.

    Returns:
        What to tell the user.

    Raises:
        UsageError: the file exists or cannot be written.
    """
    report = diagnosis_to_json(diagnosis)
    data: dict[str, Any] = {"report": report, "span": [0, 1], "steps": None, "series": [], "names": [], "lanes": []}
    data["notes"] = ["A saved report has no charts over time: they need the record."]
    if run is not None:
        data = run_data(run, report)
    data["classes"] = CLASS_MEANING
    data["confidence"] = {cause.id: confidence_in_words(cause) for cause in diagnosis.causes}
    text = render(diagnosis).plain
    return _write(page(f"flatout: {diagnosis.run_id}", "run.js", data, text), path, force)


def write_comparison(comparison: Comparison, path: Path, *, force: bool) -> str:
    """Write the page of a comparison; the rest as in :func:`write_run`."""
    data, text = comparison_data(comparison), "\n".join(comparison_lines(comparison))
    return _write(page("flatout: comparison", "compare.js", data, text), path, force)


def write_fix(fixed: FixResult, files: tuple[Export | None, Mapping[str, Export]], path: Path, *, force: bool) -> str:
    """Write the page of a fix: every trial, predicted against measured; ``files`` as of ``report.fix.lines``."""
    data = {"result": to_dict(fixed, *files), "words": OUTCOMES, "classes": CLASS_MEANING}
    return _write(page("flatout: fix", "fix.js", data, "\n".join(fix_lines(fixed, *files))), path, force)


def write_training(training: TrainingFolder, path: Path, *, force: bool) -> str:
    """Write the page of a training by a recipe; the rest as in :func:`write_run`."""
    content = page(
        f"flatout: {training.path.name}", "train.js", training_data(training), "\n".join(text_lines(training))
    )
    return _write(content, path, force)


def write_staging(pace: Pace, result: dict[str, Any], text: str, path: Path, *, force: bool) -> str:
    """Write the page of a staging; ``result`` and ``text`` as of ``staging_data``, the rest as in :func:`write_run`."""
    return _write(page("flatout: staging", "stage.js", staging_data(pace, result, text), text), path, force)


def _write(content: str, path: Path, force: bool) -> str:
    encoded = content.encode("utf-8", "replace")
    if len(encoded) > LARGEST:
        raise UsageError(
            f"{path}: the page would have {size(len(encoded))}, more than the {size(LARGEST)} that open quickly; use "
            "--markdown or --json"
        )
    write_file(path, encoded, force=force)
    return f"{path}\n  {size(len(encoded))}; open it in a browser: it needs no network"
