"""The recorded state of a destination, read without writing anything, so a read-only disk will do."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from flatout.errors import UsageError
from flatout.stage.destination.own_folder import DATABASE, reading, see_plain
from flatout.stage.destination.safe_paths import refusal, state_folder
from flatout.stage.destination.state import ANEW, BLOCK, ONE, Complete, complete_columns


def is_staged(destination: Path) -> bool:
    """True if a staging to this folder is on record."""
    return (state_folder(destination) / DATABASE).is_file()


@contextlib.contextmanager
def recorded(
    destination: Path, address: str
) -> Iterator[tuple[Callable[[str], Complete | None], Callable[[str], str | None]]]:
    """Yields two lookups for this source address: a key's file, and any other recorded name; nothing is written."""
    try:
        with contextlib.ExitStack() as stack:
            base = None
            if is_staged(destination):
                base = stack.enter_context(reading(state_folder(destination) / DATABASE))
                complete_columns(base)
                if base.execute("SELECT 1 FROM about WHERE name='source' AND value=?", (address,)).fetchone() is None:
                    base = None

            def known(key: str) -> Complete | None:
                row = base.execute(ONE, (key,)).fetchone() if base is not None else None
                return Complete._make(row) if row else None

            def about(name: str) -> str | None:
                row = base.execute("SELECT value FROM about WHERE name=?", (name,)).fetchone() if base else None
                return str(row[0]) if row else None

            yield known, about
    except sqlite3.Error as error:
        raise UsageError(f"{state_folder(destination) / DATABASE}: {error}: {ANEW}") from None


def read_state(destination: Path) -> Iterator[Complete]:
    """The recorded files of a destination, in order of key.

    Raises:
        UsageError: nothing was staged there, or its record is damaged.
    """
    if not is_staged(destination):
        raise UsageError(f"{destination}: nothing was staged there")
    path = state_folder(destination) / DATABASE
    see_plain(path.parent)
    after = ""
    try:
        with reading(path) as base:
            complete_columns(base)
            while rows := base.execute(BLOCK.format(""), (after,)).fetchall():
                for row in rows:
                    if list(map(type, row)) != [str, int, str, str, int, str, int, int] or refusal(row[0]):
                        raise UsageError(f"{path}: is damaged at {str(row[0])[:80]!r}: {ANEW}")
                    yield Complete._make(row)
                after = rows[-1][0]
    except sqlite3.Error as error:
        raise UsageError(f"{path}: {error}: {ANEW}") from None
