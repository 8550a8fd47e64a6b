#!/usr/bin/env python3
"""List the functions that no test enters, and how many branches are not taken, from coverage.py's JSON.

Usage: scripts/untested.py FILE.json
"""

import json
import sys
from pathlib import Path


def main(path: str) -> int:
    """Print the list; the exit code is 0."""
    report = json.loads(Path(path).read_text("utf-8"))
    missed = 0
    for file, found in sorted(report["files"].items()):
        names = [
            name
            for name, function in found["functions"].items()
            if name and function["summary"]["num_statements"] and not function["summary"]["covered_lines"]
        ]
        missed += len(names)
        branches = found["summary"].get("missing_branches", 0)
        if names or branches:
            print(f"{file}: {branches} branch(es) not taken" + "".join(f"\n    {name}" for name in sorted(names)))
    totals = report["totals"]
    print(
        f"\n{missed} function(s) that no test enters; {totals['covered_branches']} of {totals['num_branches']} branches"
        f", {totals['covered_lines']} of {totals['num_statements']} statements"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
