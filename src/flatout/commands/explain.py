"""``flatout explain``: what a cause means, how it is found, and what to do."""

from __future__ import annotations

import json
import textwrap
from typing import Annotated

import typer

from flatout.commands.options import AsJson, Markdown

WIDTH = 80


def explain(
    cause: Annotated[
        str | None, typer.Argument(metavar="CAUSE", help="An id that a report names. Without it: list them all.")
    ] = None,
    markdown: Markdown = False,
    as_json: AsJson = False,
) -> None:
    """Explain a cause: what it means, how it is found, what to do. Settings and remedies get a line.

    Example: flatout explain storage_latency
    """
    from flatout.diagnose.explanations import explanation, explanations, text

    if markdown:
        print(text(), end="")
        return
    known = explanations() if cause is None else {cause: _of_setting_or_remedy(cause) or explanation(cause)}
    if as_json:
        print(json.dumps(known, indent=2))
        return
    if cause is not None:
        print(f"{cause}\n\n{_wrapped(known[cause])}")
        return
    width = max(map(len, known))
    for name, words in known.items():
        first = textwrap.shorten(words.partition("\n")[0], WIDTH - width - 4, placeholder=" …")
        print(f"  {name:<{width}}  {first}")


def _of_setting_or_remedy(name: str) -> str | None:
    """The words on a setting or a remedy, whose names reports print too; None: it is neither."""
    from flatout.probe.settings import SETTINGS
    from flatout.remedies import REMEDIES

    if name in SETTINGS:
        return f"A setting of `flatout apply`, `fix` and `try`: {SETTINGS[name].help}. See docs/fixing.md."
    spec = next((spec for spec in REMEDIES if spec.id == name), None)
    if spec is None:
        return None
    does = (spec.propose.__doc__ or "").strip().rstrip(".")
    return f"A remedy of class {spec.semantic_class}: {does}. It answers {', '.join(spec.causes)}."


def _wrapped(words: str) -> str:
    """Wrap paragraphs at 80 columns; leave code unchanged."""
    paragraphs = words.split("\n\n")
    return "\n\n".join(
        part if part.startswith("    ") else textwrap.fill(" ".join(part.split()), WIDTH) for part in paragraphs
    )
