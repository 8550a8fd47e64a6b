"""Output of a report, to standard output or to a file that is never overwritten unasked, and its format."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path

from flatout.atomic_file import write_atomically
from flatout.errors import UsageError
from flatout.results import Diagnosis

# Files of a run folder that its report reads, besides those in ``processes``.
_RECORDED = {"run.json", "machine.json", "system.jsonl", "control"}


class Form(StrEnum):
    """The formats of a report."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    JSON = "json"
    HTML = "html"


def choose_form(*, markdown: bool, as_json: bool, as_html: bool = False) -> Form:
    """Resolve the flags.

    Raises:
        UsageError: More than one is given.
    """
    given = [form for form, wanted in ((Form.MARKDOWN, markdown), (Form.JSON, as_json), (Form.HTML, as_html)) if wanted]
    if len(given) > 1:
        options = " and ".join(f"--{form}" for form in given)
        both = "both" if len(given) == 2 else "all"
        raise UsageError(f"{options} are {both} given; a report has one form: give one of them")
    return given[0] if given else Form.TERMINAL


def check_output(output: Path | None, *, force: bool) -> None:
    """Refuse an output file that could not be written, before the work that would be lost with it.

    Raises:
        UsageError: The file exists and ``force`` is false, or is a part of a record, or its folder does not exist.
    """
    if output is None:
        return
    # os.path returns False where pathlib raises, such as for a name that is too long: opening it reports why.
    if os.path.isdir(output):
        raise UsageError(f"--output {output} is a folder; give a file in it")
    if os.path.exists(output) and not force:
        raise UsageError(f"--output {output} exists; give another name, or --force to overwrite it")
    if os.path.exists(output) and _recorded(output):
        raise UsageError(f"--output {output} is a part of the record of a run; give another name")
    if not os.path.isdir(output.parent):
        raise UsageError(f"--output {output}: there is no folder {output.parent}; create it first")


def _recorded(output: Path) -> bool:
    """True if the file is one that a report of its run reads."""
    folder = output.resolve().parent
    if (folder / "run.json").is_file():
        return output.name in _RECORDED
    return folder.name == "processes" and (folder.parent / "run.json").is_file()


def page_file(output: Path | None, default: str, *, as_json: bool, as_html: bool, force: bool) -> Path | None:
    """The file that --html writes, checked before the work that would be lost with it; None without --html.

    Raises:
        UsageError: Options do not go together, or the file could not be written.
    """
    if as_json and as_html:
        raise UsageError("--json and --html are both given; a result has one form: give one of them")
    if not as_html:
        if output is not None:
            raise UsageError(f"--output {output}: only --html writes a file; the text goes to standard output")
        return None
    path = output or Path(default)
    if output is None and path.exists() and not force:
        raise UsageError(f"{path} exists; give another name with --output, or --force to overwrite it")
    check_output(path, force=force)
    return path


def write_report(diagnosis: Diagnosis, form: Form, output: Path | None = None, *, force: bool = False) -> None:
    """Render the report and write it to ``output``, or to standard output.

    Raises:
        UsageError: The file exists and ``force`` is false, or it cannot be written.
    """
    check_output(output, force=force)
    if output is None and form is Form.TERMINAL:
        from flatout.report.terminal import print_report

        print_report(diagnosis, sys.stdout)
        return
    encoded = f"{_render(diagnosis, form)}\n".encode("utf-8", "replace")
    if output is None:
        # Bytes: Markdown is UTF-8 wherever it is piped.
        sys.stdout.flush()
        sys.stdout.buffer.write(encoded)
        sys.stdout.buffer.flush()
        return
    write_file(output, encoded, force=force)


def write_file(output: Path, encoded: bytes, *, force: bool) -> None:
    """Write a file, over another one only with ``force``.

    Raises:
        UsageError: It cannot be written.
    """
    try:
        if not force:
            _write_new(output, encoded)
        elif output.is_file() or not output.exists():
            write_atomically(output.resolve(), encoded)
        else:  # such as /dev/stdout
            output.write_bytes(encoded)
    except OSError as error:
        raise UsageError(f"--output {output}: cannot be written ({error.strerror}); give another file") from error


def _write_new(output: Path, encoded: bytes) -> None:
    """Write a file that does not exist yet; of a full disk, no part of it is left."""
    with output.open("xb") as file:
        try:
            file.write(encoded)
            file.flush()
        except BaseException:
            output.unlink(missing_ok=True)
            raise


def _render(diagnosis: Diagnosis, form: Form) -> str:
    """Render for a file or a pipe. Imported here, so that each format costs only when used."""
    if form is Form.JSON:
        from flatout.report.json_report import render_json

        return render_json(diagnosis)
    if form is Form.MARKDOWN:
        from flatout.report.markdown import render_markdown

        return render_markdown(diagnosis)
    from flatout.report.terminal import render

    return render(diagnosis).plain
