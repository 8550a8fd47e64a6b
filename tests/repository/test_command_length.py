"""Commands parse options and print; what takes more belongs to the package that does the work."""

import ast
from pathlib import Path

COMMANDS = Path(__file__).parents[2] / "src/flatout/commands"
MOST_LINES = 60


def test_no_function_of_a_command_has_more_than_60_lines() -> None:
    functions = [
        (f"{path.name}: {node.name}", (node.end_lineno or 0) - node.lineno + 1)
        for path in sorted(COMMANDS.glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
    ]
    assert len(functions) > 60
    assert [name for name, lines in functions if lines > MOST_LINES] == []
