"""What torch.compile compiles is recorded, function by function, and the training stays the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flatout.probe import events
from flatout.record.run import ProcessRecord
from tests.probe.recorded import run_bare, run_probed

SCRIPT = (Path(__file__).parent / "scripts" / "compiled_steps.py").read_text()

pytestmark = pytest.mark.slow


def trained(folder: Path, what: str) -> ProcessRecord:
    ran = run_probed(folder, SCRIPT, what)
    assert ran.code == 0, ran.err
    assert ran.faults() == []
    bare = run_bare(folder, SCRIPT, what)
    assert bare.code == 0, bare.err
    assert ran.out == bare.out
    return ran.main


def compilations(process: ProcessRecord) -> list[dict[str, Any]]:
    spans = process.of_kinds(events.COMPILE)
    entries = [process.names.get(id, "compilation") for id in spans["arg"].tolist()]
    return [entry for entry in entries if entry.get("function", "").endswith("forward")]


def breaks(process: ProcessRecord) -> list[dict[str, Any]]:
    return [entry for entry in process.names.entries.values() if entry.get("type") == "graph_break"]


def test_a_function_is_compiled_once_where_nothing_changes(tmp_path: Path) -> None:
    found = compilations(trained(tmp_path, "fullgraph"))
    assert [entry["reason"] for entry in found] == [""]
    assert found[0]["file"].endswith("script.py") and "def forward" in found[0]["source"]


def test_a_shape_that_changes_is_named_with_its_guard(tmp_path: Path) -> None:
    process = trained(tmp_path, "shapes")
    found = compilations(process)
    assert [bool(entry["reason"]) for entry in found] == [False, True, True]
    assert "size mismatch at index 0. expected" in found[1]["reason"]
    assert not breaks(process)


def test_a_number_that_changes_leads_to_the_limit(tmp_path: Path) -> None:
    found = compilations(trained(tmp_path, "steps"))
    assert "step" in found[1]["reason"]
    assert [bool(entry.get("limited")) for entry in found] == [False] * 4 + [True]


def test_a_break_is_noted_with_its_line_and_reason(tmp_path: Path) -> None:
    found = breaks(trained(tmp_path, "breaks"))
    lines = SCRIPT.splitlines()
    assert [(one["line"], one["count"]) for one in found] == [
        (next(number for number, line in enumerate(lines, 1) if "# the break" in line), 1)
    ]
    assert found[0]["reason"] and "\n" not in found[0]["reason"]


def test_a_training_that_compiles_nothing_records_nothing(tmp_path: Path) -> None:
    process = trained(tmp_path, "eager")
    assert not len(process.of_kinds(events.COMPILE))
