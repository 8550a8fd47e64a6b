"""YAML whose size is bounded before it is built: a small text can expand to endless nesting or copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from flatout.errors import UsageError

MOST_BYTES = 1 << 20
MOST_DEPTH = 32
MOST_VALUES = 10_000  # each alias counts as the values it expands to
LONGEST = 2_000  # characters of one value; Python reads integers of up to 4,300 digits


def round_trip_yaml() -> YAML:
    """A YAML 1.2 parser that keeps comments, order and line numbers."""
    yaml = YAML()
    yaml.allow_duplicate_keys = False
    yaml.preserve_quotes = True
    return yaml


def read_yaml(path: Path) -> str:
    """The text of a YAML file.

    Raises:
        UsageError: it cannot be read, is not text, or is larger than 1 MiB.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is no text in UTF-8") from None
    if len(content) > MOST_BYTES:
        raise UsageError(f"{path}: is larger than {MOST_BYTES:,} bytes, the most that a recipe may have")
    return text


def parse_yaml(text: str, name: str) -> Any:
    """The value of a YAML document; None for an empty one.

    Args:
        text: the document.
        name: of the file, for messages; empty: a value of the command line.

    Raises:
        UsageError: it is not a single YAML document, or a value is too long, too deep or too often repeated; one line
            with the place.
    """
    try:
        _check_bounds(text)
        return round_trip_yaml().load(text)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = (f"{name}:{mark.line + 1}" if mark else name) + ": " if name else ""
        problem = str(getattr(error, "problem", None) or error).strip().splitlines()[0]
        raise UsageError(f"{place}{problem}: correct the YAML") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:  # a date such as 2024-13-45
        problem = (str(error).strip() or type(error).__name__).splitlines()[0]
        place = f"{name}: " if name else ""
        raise UsageError(f"{place}a value cannot be read: {problem}: correct the YAML") from None


def _check_bounds(text: str) -> None:
    """Check limits on the stream of events, which holds one event in memory at a time."""
    stands_for: dict[str, int] = {}  # anchor -> values
    open_: list[tuple[str | None, int]] = []  # anchor, values before it
    values = documents = 0
    for event in round_trip_yaml().parse(text):
        if isinstance(event, DocumentStartEvent):
            documents += 1
            if documents > 1:
                _refuse(event, "a second document begins: a recipe is one")
        elif isinstance(event, AliasEvent):
            if event.anchor in {anchor for anchor, _ in open_}:
                _refuse(event, f"*{event.anchor} stands inside of itself")
            values += stands_for.get(str(event.anchor), 1)
        elif isinstance(event, ScalarEvent):
            values += 1
            if len(event.value) > LONGEST:
                _refuse(event, f"a value of {len(event.value):,} characters: {LONGEST:,} are allowed")
            if event.anchor:
                stands_for[event.anchor] = 1
        elif isinstance(event, MappingStartEvent | SequenceStartEvent):
            open_.append((event.anchor, values))
            values += 1
            if len(open_) > MOST_DEPTH:
                _refuse(event, f"is nested more than {MOST_DEPTH} levels deep")
        elif isinstance(event, MappingEndEvent | SequenceEndEvent):
            anchor, before = open_.pop()
            if anchor:
                stands_for[anchor] = values - before
        if values > MOST_VALUES:
            _refuse(event, f"stands for more than {MOST_VALUES:,} values")


def _refuse(event: Any, problem: str) -> None:
    raise MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
