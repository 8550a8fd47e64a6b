"""What is noted of a destination, read without writing to it, and as a table for others."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from flatout.atomic_file import replacing
from flatout.errors import UsageError
from flatout.stage.destination.own_folder import DATABASE, reading, see_plain
from flatout.stage.destination.safe_paths import refusal, state_folder
from flatout.stage.destination.state import ANEW, BLOCK, ONE, ROWS_AT_ONCE, Complete, State, complete_columns

MANIFEST = "manifest.parquet"
COLUMNS = ("path", "size", "version", "checksum", "verified")


def write_manifest(state: State, address: str) -> Path:
    """Write what is there, from where, as Parquet beside the database; the old manifest is replaced as a whole.

    Columns: path, size, version (of the object), checksum, verified (what of the store's it was compared with).
    """
    import pyarrow as pa
    import pyarrow.parquet as parquet

    schema = pa.schema(
        [(name, pa.int64() if name == "size" else pa.string()) for name in COLUMNS],
        metadata={"source": address, "format": "1"},
    )
    target = state.folder / MANIFEST
    files = state.all()
    with replacing(target) as file, parquet.ParquetWriter(file, schema) as writer:
        while block := list(itertools.islice(files, ROWS_AT_ONCE)):
            writer.write_table(_table(pa, schema, block))
    return target


def _table(pa: Any, schema: Any, block: list[Complete]) -> Any:
    rows = [(done.key, done.size, done.version, done.checksum, done.verified) for done in block]
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)


def is_staged(destination: Path) -> bool:
    """Whether something was staged to a folder."""
    return (state_folder(destination) / DATABASE).is_file()


@contextlib.contextmanager
def noted(
    destination: Path, address: str
) -> Iterator[tuple[Callable[[str], Complete | None], Callable[[str], str | None]]]:
    """Gives the file of a key, and what else has a name, as noted of this address; nothing is written."""
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
    """The files noted for a destination, in order of key; nothing is written, also where nothing could be.

    Raises:
        UsageError: nothing was staged there, or what is noted is damaged.
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
