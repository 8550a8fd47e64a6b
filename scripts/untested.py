#!/usr/bin/env python3
"""Name the functions that no test enters, from coverage.py's JSON; each needs a reason beside it in the source.

The reason is a comment on the line of the `def` or on the one above it: `# untested: needs a GPU`. A reason beside a
function that a test enters is a fault too.

Usage: scripts/untested.py FILE.json
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

REASON = re.compile(r"# untested: (\S.*)")


def functions(report: dict) -> Iterator[tuple[str, str | None, bool]]:
    """Place and name of each function that has statements, the reason beside it, and whether a test enters it."""
    for file, found in sorted(report["files"].items()):
        lines = ["", *Path(file).read_text("utf-8").splitlines()]
        for name, function in sorted(found["functions"].items()):
            line, summary = function["start_line"], function["summary"]
            if name and summary["num_statements"]:
                reason = REASON.search(lines[line]) or REASON.match(lines[line - 1].strip())
                yield f"{file}:{line} {name}", reason and reason[1], bool(summary["covered_lines"])


def main(path: str) -> int:
    """Print the lists; the exit code is 1 where a reason is missing or stale."""
    report = json.loads(Path(path).read_text("utf-8"))
    excused, missing, stale = [], [], []
    for place, reason, entered in functions(report):
        if reason:
            (stale if entered else excused).append(f"{place}: {reason}")
        elif not entered:
            missing.append(place)
    for title, places in (
        ("untested, with a reason", excused),
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
