"""Every cause is explained, in one text for the terminal and the documentation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flatout.cli import app
from flatout.diagnose.causes import CAUSES
from flatout.diagnose.explanations import explanation, explanations, text
from flatout.diagnose.findings import FINDINGS
from flatout.errors import UsageError


def test_every_cause_is_explained_and_nothing_else() -> None:
    assert set(explanations()) == {cause.id for cause in CAUSES} | FINDINGS.keys()
    for id, words in explanations().items():
        assert "How it is found" in words and "What to do:" in words, id


def test_the_page_is_made_from_the_same_text() -> None:
    page = Path(__file__).resolve().parents[2] / "docs/causes.md"
    assert page.read_text("utf-8") == text(), "docs/causes.md is a link to src/flatout/diagnose/causes.md"


def test_the_command_lists_and_explains_within_80_columns() -> None:
    listed = CliRunner().invoke(app, ["explain"])
    assert listed.exit_code == 0 and len(listed.output.splitlines()) == len(CAUSES) + len(FINDINGS)
    for id in explanations():
        shown = CliRunner().invoke(app, ["explain", id])
        assert shown.exit_code == 0
        assert all(len(line) <= 80 for line in (*shown.output.splitlines(), *listed.output.splitlines()))
    assert set(json.loads(CliRunner().invoke(app, ["explain", "h2d", "--json"]).output)) == {"h2d"}


def test_an_unknown_cause_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean storage_latency"):
        explanation("storage_latensy")


def test_settings_and_remedies_get_a_line() -> None:
    shown = {name: CliRunner().invoke(app, ["explain", name]).output for name in ("call_every", "trim_padding")}
    assert "A setting of `flatout apply`" in shown["call_every"] and "in every N-th step" in shown["call_every"]
    assert "A remedy of class identical" in CliRunner().invoke(app, ["explain", "samples_memoized"]).output
