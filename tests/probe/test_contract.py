"""Names that flatout and its probe agree on are written once; what stands alone spells the same."""

from __future__ import annotations

import ast
from pathlib import Path

from flatout.probe import contract

PROBE = Path(contract.__file__).parent
SOURCE = PROBE.parent
VARIABLES = {value for name, value in vars(contract).items() if name.endswith("_VARIABLE")}
TELLS_A_COMMAND = "live/notifying.py"  # variables for the user's command, which the probe has no part in
STAND_ALONE = {"probe/on_pythonpath/sitecustomize.py", "runner/guardian.py"}


def literals(path: Path) -> set[str]:
    """String constants of a file, docstrings left out."""
    tree = ast.parse(path.read_text("utf-8"))
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents
    }


def test_no_other_file_spells_a_variable_or_a_metric() -> None:
    assert len(VARIABLES) == 13 and all(name.startswith("FLATOUT_") for name in VARIABLES)
    found = {
        (str(path.relative_to(SOURCE)), text)
        for path in SOURCE.rglob("*.py")
        for text in literals(path)
        if text.startswith(("FLATOUT_", contract.METRIC_PREFIX)) and path.name != "contract.py"
    }
    assert {path for path, _ in found} == STAND_ALONE | {TELLS_A_COMMAND}
    assert {text.rstrip("=") for path, text in found if path != TELLS_A_COMMAND} <= VARIABLES
    assert {text for path, text in found if path == TELLS_A_COMMAND}.isdisjoint(VARIABLES)
