#!/usr/bin/env python3
"""List the benchmarks and run them: each is benchmarks/NAME/run.py, explained by its docstring's first line.

Usage: scripts/bench.py [NAME ...]
"""

import ast
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all; the exit code is that of the first one that fails."""
    found = {path.parent.name: path for path in sorted(FOLDER.glob("*/run.py"))}
    unknown = [name for name in names if name not in found]
    if unknown or not found:
        wanted = f"no benchmark named '{unknown[0]}'" if unknown else "no benchmark"
        print(f"bench: {wanted} in {FOLDER}; there are: {', '.join(found) or 'none'}", file=sys.stderr)
        return 2
    for name, path in found.items():
        doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "(no docstring)"
        print(f"  {name:<12} {doc.splitlines()[0]}", flush=True)
    for name in names or found:
        print(f"\n== {name}", flush=True)
        code = subprocess.run([sys.executable, str(found[name])]).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
