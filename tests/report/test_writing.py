"""Forms, files and what is refused before anything is overwritten."""

from __future__ import annotations

import json
import resource
import signal
from pathlib import Path

import pytest

from flatout.errors import UsageError
from flatout.report.writing import Form, check_output, choose_form, write_file, write_report
from tests.report import diagnoses


def test_two_forms_at_once_are_refused() -> None:
    assert choose_form(markdown=False, as_json=False) is Form.TERMINAL
    assert choose_form(markdown=True, as_json=False) is Form.MARKDOWN
    with pytest.raises(UsageError, match="--markdown and --json"):
        choose_form(markdown=True, as_json=True)


def test_an_existing_file_is_overwritten_only_by_force(tmp_path: Path) -> None:
    file = tmp_path / "report.md"
    file.write_text("mine")
    with pytest.raises(UsageError, match="--force"):
        write_report(diagnoses.healthy(), Form.MARKDOWN, file)
    assert file.read_text() == "mine"
    write_report(diagnoses.healthy(), Form.MARKDOWN, file, force=True)
    assert file.read_text("utf-8").startswith("# ")


def test_a_terminal_report_in_a_file_is_plain_text(tmp_path: Path) -> None:
    file = tmp_path / "report.txt"
    write_report(diagnoses.starved(), Form.TERMINAL, file)
    text = file.read_text("utf-8")
    assert "\x1b" not in text
    assert text.startswith("The GPU waits for data 79%")
    assert text.endswith("'/local/subset of a thousand'\n")


@pytest.mark.parametrize("name", [".", "absent/report.md"])
def test_a_folder_and_a_file_in_an_absent_folder_are_refused_beforehand(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="--output"):
        check_output(tmp_path / name, force=True)


def test_a_file_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written") as refused:
        write_report(diagnoses.healthy(), Form.JSON, tmp_path / ("x" * 300))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["run.json", "system.jsonl", "processes/1.json"])
def test_no_report_overwrites_the_record_that_it_is_made_of(tmp_path: Path, name: str) -> None:
    (tmp_path / "processes").mkdir()
    for path in ("run.json", name):
        (tmp_path / path).write_text("{}")
    with pytest.raises(UsageError, match="is a part of the record of a run"):
        check_output(tmp_path / name, force=True)
    check_output(tmp_path / "report.html", force=True)


@pytest.mark.parametrize("force", [False, True])
def test_of_a_page_that_does_not_fit_on_the_disk_nothing_is_left(tmp_path: Path, force: bool) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    file = tmp_path / "page.html"
    if force:
        file.write_text("the page before")
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
        with pytest.raises(UsageError, match="cannot be written"):
            write_file(file, b"x" * 5000, force=force)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert [path.read_text() for path in tmp_path.iterdir()] == (["the page before"] if force else [])


def test_json_on_standard_output_is_json_alone(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write_report(diagnoses.starved(), Form.JSON)
    assert json.loads(capfdbinary.readouterr().out)["schema"] == 1


def test_markdown_on_standard_output_is_utf8(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write_report(diagnoses.starved(), Form.MARKDOWN)
    assert "█" in capfdbinary.readouterr().out.decode("utf-8")
