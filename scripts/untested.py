#!/usr/bin/env python3
"""Name the functions that no test enters, from coverage.py's JSON; each needs a reason beside it in the source.

The reason is a comment on the line of the `def` or on the one above it: `# untested: needs a GPU`. Beside a `class` it
holds for the functions in it, and on a line of its own before the first import for those of the file. A reason without
a function that no test enters is a fault too.

Usage: scripts/untested.py FILE.json
"""

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

REASON = re.compile(r"# untested: (\S.*)")


def reasons(source: str) -> dict[str, str]:
    """The reason beside each function and class, by its dotted name; that of the file has an empty one."""
    lines = ["", *source.splitlines()]
    tree = ast.parse(source)
    head = lines[: next((node.lineno for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)), 1)]
    found = {}
    for reason in filter(None, map(REASON.match, head)):
        found[""] = reason[1]
    inside: list[tuple[str, ast.AST]] = [("", tree)]
    while inside:
        outer, node = inside.pop()
        for child in ast.iter_child_nodes(node):
            name = outer
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{outer}.{child.name}".lstrip(".")
                reason = REASON.search(lines[child.lineno]) or REASON.match(lines[child.lineno - 1].strip())
                if reason:
                    found[name] = reason[1]
            inside.append((name, child))
    return found


def functions(report: dict) -> Iterator[tuple[str, str, str | None, bool]]:
    """Each function that has statements: place and name, where its reason stands, the reason, whether it is entered."""
    for file, found in sorted(report["files"].items()):
        known = reasons(Path(file).read_text("utf-8"))
        for name, function in sorted(found["functions"].items()):
            if name and function["summary"]["num_statements"]:
                parts = name.split(".")
                outer = [".".join(parts[:count]) for count in range(len(parts), -1, -1)]
                holder = next((each for each in outer if each in known), None)
                reason = None if holder is None else known[holder]
                entered = bool(function["summary"]["covered_lines"])
                yield f"{file}:{function['start_line']} {name}", f"{file} {holder}", reason, entered


def main(path: str) -> int:
    """Print the lists; the exit code is 1 where a reason is missing or stale."""
    report = json.loads(Path(path).read_text("utf-8"))
    excused, missing = [], []
    entered_ones: dict[str, str] = {}
    for place, holder, reason, entered in functions(report):
        if reason and entered:
            entered_ones.setdefault(holder, f"{place}: {reason}")
        elif reason:
            excused.append((holder, f"{place}: {reason}"))
        elif not entered:
            missing.append(place)
    needed = {holder for holder, _ in excused}
    stale = [place for holder, place in entered_ones.items() if holder not in needed]
    for title, places in (
        ("untested, with a reason", [place for _, place in excused]),
        ("untested: test it, delete it, or give the reason (`# untested: needs a GPU`)", missing),
        ("tested: delete the comment `# untested`", stale),
    ):
        if places:
            print(f"{len(places)} function(s) {title}\n    " + "\n    ".join(places))
    totals = report["totals"]
    print(
        f"{totals['covered_lines']} of {totals['num_statements']} statements and {totals['covered_branches']} of "
        f"{totals['num_branches']} branches are run"
    )
    return 1 if missing or stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
