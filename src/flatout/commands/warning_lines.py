"""Warnings in the words of the command line."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

from flatout.terminal_text import progress_lines


def warn_in_lines() -> None:
    """Show warnings of flatout's own modules as one line each, once; others as Python does."""
    package, shown, usual = f"{Path(__file__).parents[1]}/", set[str](), warnings.showwarning

    def show(message: Any, category: Any, filename: str, *where: Any, **options: Any) -> None:
        if not filename.startswith(package):
            usual(message, category, filename, *where, **options)
        elif str(message) not in shown:
            shown.add(str(message))
            print("\n".join(progress_lines(str(message))), file=sys.stderr)

    warnings.showwarning = show
