"""What commands print beside their result."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import flatout


def test_warnings_of_flatout_are_single_lines_once_and_those_of_others_as_python_shows_them() -> None:
    module = Path(flatout.__file__).parent / "x.py"
    program = f"""
import warnings
from flatout.commands.warning_lines import warn_in_lines
warn_in_lines()
for _ in range(2):
    warnings.warn_explicit("a layout is slow " + "and slow " * 12, UserWarning, {str(module)!r}, 1)
warnings.warn_explicit("theirs", UserWarning, "/elsewhere.py", 7)
"""
    done = subprocess.run([sys.executable, "-W", "always", "-c", program], capture_output=True, text=True, check=True)
    first, second, theirs = done.stderr.splitlines()
    assert first.startswith("flatout: a layout is slow") and len(first) <= 80 and second.startswith("  and slow")
    assert theirs == "/elsewhere.py:7: UserWarning: theirs"
