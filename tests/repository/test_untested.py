"""scripts/untested.py: a function that no test enters has a reason beside it, and no other function has one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "untested.py"
SOURCE = """
def entered():
    return 1


class Device:
    # untested: needs a GPU
    def allocate(self):
        return 2


def forgotten(): # untested: needs two hosts
    return 3
"""


def told(folder: Path, source: str, entered: set[str]) -> tuple[int, str]:
    """Exit code and output for a measured file."""
    (folder / "measured.py").write_text(source, encoding="utf-8")
    lines = {"entered": 2, "Device.allocate": 8, "forgotten": 12}
    functions = {
        name: {"start_line": line, "summary": {"num_statements": 1, "covered_lines": int(name in entered)}}
        for name, line in lines.items()
    }
    totals = {"covered_lines": 4, "num_statements": 6, "covered_branches": 0, "num_branches": 0}
    report = {"files": {str(folder / "measured.py"): {"functions": functions}}, "totals": totals}
    (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")
    done = subprocess.run([sys.executable, SCRIPT, folder / "report.json"], capture_output=True, text=True)
    return done.returncode, done.stdout


def test_functions_with_a_reason_are_listed_and_pass(tmp_path: Path) -> None:
    code, out = told(tmp_path, SOURCE, {"entered"})
    assert code == 0
    assert "Device.allocate: needs a GPU" in out and "forgotten: needs two hosts" in out
    assert "4 of 6 statements" in out


@pytest.mark.parametrize(
    ("source", "entered", "word"),
    [
        (SOURCE.replace("# untested: needs two hosts", ""), {"entered"}, "12 forgotten\n"),
        (SOURCE, {"entered", "forgotten"}, "12 forgotten: needs two hosts"),
        (SOURCE.replace("needs a GPU", ""), {"entered"}, "8 Device.allocate\n"),
    ],
    ids=["missing", "stale", "no words"],
)
def test_a_reason_that_is_missing_or_stale_is_named_and_fails(
    tmp_path: Path, source: str, entered: set[str], word: str
) -> None:
    code, out = told(tmp_path, source, entered)
    assert code == 1
    assert word in out


OF_A_CLASS = SOURCE.replace("class Device:", "class Device:  # untested: needs a GPU").replace(
    "    # untested: needs a GPU\n", "\n"
)


def test_a_reason_beside_a_class_or_at_the_head_of_a_file_holds_for_what_is_in_it(tmp_path: Path) -> None:
    code, out = told(tmp_path, OF_A_CLASS, {"entered"})
    assert code == 0 and "Device.allocate: needs a GPU" in out
    head = "# untested: ends with its process\nimport os\n" + OF_A_CLASS.replace("# untested: needs two hosts", "")
    code, out = told(tmp_path, head, {"entered"})
    assert code == 0 and "forgotten: ends with its process" in out


def test_a_reason_for_a_class_is_stale_once_all_in_it_are_entered(tmp_path: Path) -> None:
    code, out = told(tmp_path, OF_A_CLASS, {"entered", "Device.allocate"})
    assert code == 1 and "Device.allocate: needs a GPU" in out
