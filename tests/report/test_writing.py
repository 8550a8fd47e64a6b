"""Forms, files and what is refused before anything is overwritten."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flatout.errors import UsageError
from flatout.report.writing import Form, check_output, choose_form, write_report
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


def test_json_on_standard_output_is_json_alone(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write_report(diagnoses.starved(), Form.JSON)
    assert json.loads(capfdbinary.readouterr().out)["schema"] == 1


def test_markdown_on_standard_output_is_utf8(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write_report(diagnoses.starved(), Form.MARKDOWN)
    assert "█" in capfdbinary.readouterr().out.decode("utf-8")
