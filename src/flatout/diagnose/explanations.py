"""The causes in words: one text for the terminal and for the documentation."""

from __future__ import annotations

import difflib
from importlib.resources import files

from flatout.errors import UsageError


def text() -> str:
    """The whole page, Markdown."""
    return files("flatout.diagnose").joinpath("causes.md").read_text("utf-8")


def explanations() -> dict[str, str]:
    """Cause id -> its explanation: a first sentence, how it is found, what to do, code indented by four spaces."""
    parts = [part.partition("\n# ")[0] for part in text().split("\n## ")[1:]]
    return {part.partition("\n")[0].strip(): part.partition("\n")[2].strip() for part in parts}


def explanation(cause: str) -> str:
    """The explanation of one cause.

    Raises:
        UsageError: there is no such cause.
    """
    known = explanations()
    if cause not in known:
        near = difflib.get_close_matches(cause, known, 1, 0.6)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"no cause {cause!r}: {hint}`flatout explain` lists them")
    return known[cause]
