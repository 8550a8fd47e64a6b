"""What is complete at the destination: a small database that survives ``kill -9``, and the manifest made from it."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from flatout.errors import UsageError
from flatout.stage.names import state_folder

MANIFEST = "manifest.parquet"
ROWS_AT_ONCE = 50_000
ROWS_TOGETHER = 1_000  # at most, in one commit
NOTED_EVERY_S = 0.01  # what was copied in it is copied again after a kill
_SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
    key TEXT PRIMARY KEY, size INTEGER NOT NULL, version TEXT NOT NULL,
    checksum TEXT NOT NULL, mtime_ns INTEGER NOT NULL, seen INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS dropped (key TEXT PRIMARY KEY, version TEXT NOT NULL, why TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


class Complete(NamedTuple):
    """A file that is whole."""

    key: str
    size: int
    version: str  # of the object it was made from
    checksum: str  # of the bytes at the destination: "md5:…", as the store gives it, or "crc32:…"
    mtime_ns: int  # of the file, as staging left it: a later change by others shows


class State:
    """The database of one destination. Its methods may be called from any thread."""

    def __init__(self, destination: Path) -> None:
        """Open or make it.

        Raises:
            UsageError: it is damaged.
        """
        self.folder = state_folder(destination)
        self.folder.mkdir(exist_ok=True)
        self._lock = threading.Lock()
        path = self.folder / "state.sqlite"
        try:
            self._base = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            # The process may die at any moment, and the kernel keeps what it was given; after a power failure
            # the files themselves are checked again.
            self._base.execute("PRAGMA journal_mode=WAL")
            self._base.execute("PRAGMA synchronous=OFF")
            self._base.executescript(_SCHEMA)
        except sqlite3.DatabaseError as error:
            raise UsageError(f"{path}: {error}: remove it to check every file against its source again") from None

        self._unwritten: dict[str, tuple[Any, ...]] = {}
        self._rows: deque[tuple[Any, ...]] = deque()
        self._writing = threading.Lock()
        self._closing = threading.Event()
        self._failure: Exception | None = None
        self.is_new = not any(self._ask(f"SELECT 1 FROM {table} LIMIT 1") for table in ("files", "dropped"))
        self._writer = threading.Thread(target=self._write_on, name="flatout-state", daemon=True)
        self._writer.start()

    def close(self) -> None:
        """Write what is not written yet, and close the database."""
        self._closing.set()
        self._writer.join()
        self._write_rows()
        with self._lock:
            self._base.close()

    def _write_on(self) -> None:
        """Write rows some times a second: a commit for each would hold all threads up, and so would waking this one."""
        while not self._closing.wait(NOTED_EVERY_S):
            self._write_rows()

    def _write_rows(self) -> None:
        with self._writing:
            while self._rows:
                rows = [self._rows.popleft() for _ in range(min(len(self._rows), ROWS_TOGETHER))]
                try:
                    with self._lock:
                        self._base.execute("BEGIN")
                        self._base.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?)", rows)
                        self._base.execute("COMMIT")
                except Exception as error:  # the thread that adds the next row is told
                    self._failure = error
                for row in rows:
                    if self._unwritten.get(row[0]) is row:
                        del self._unwritten[row[0]]

    def flush(self) -> None:
        """Write everything that was added.

        Raises:
            OSError: it could not be.
        """
        if self._unwritten:
            self._write_rows()
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise OSError(errno.EIO, f"the state cannot be written: {self._failure}", str(self.folder))

    def __getitem__(self, name: str) -> str | None:
        """What was noted under a name."""
        row = self._ask("SELECT value FROM about WHERE name=?", name)
        return row[0] if row else None

    def __setitem__(self, name: str, value: str) -> None:
        """Note something."""
        self._do("INSERT OR REPLACE INTO about VALUES (?, ?)", name, value)

    def claim(self, destination: Path, address: str) -> None:
        """Note the source.

        Raises:
            UsageError: the destination holds another one.
        """
        before = self["source"]
        if before is not None and before != address:
            raise UsageError(
                f"{destination}: holds what was staged from {before}, not from {address}: "
                f"choose another folder, or remove {self.folder}"
            )
        self["source"] = address

    def begin(self) -> int:
        """Number of a new listing: what it does not see is gone from the source."""
        number = int(self["listing"] or 0) + 1
        self["listing"] = str(number)
        return number

    def known(self, key: str) -> Complete | None:
        """The file of a key, when it is complete."""
        unwritten = self._unwritten.get(key)
        if unwritten is not None:
            return Complete(*unwritten[:5])
        row = self._ask("SELECT key, size, version, checksum, mtime_ns FROM files WHERE key=?", key)
        return Complete(*row) if row else None

    def add(self, done: Complete, listing: int) -> None:
        """Note a file that is complete: it is written within NOTED_EVERY_S, in a thread of its own.

        Raises:
            OSError: an earlier one could not be noted.
        """
        self._check()
        row = (*done, listing)
        self._unwritten[done.key] = row
        self._rows.append(row)

    def saw(self, key: str, listing: int) -> None:
        """Note that the source still has a key."""
        if key in self._unwritten:
            return  # it was added by this listing
        self._do("UPDATE files SET seen=? WHERE key=?", listing, key)

    def saw_archive(self, key: str, listing: int) -> None:
        """Note that the source still has an archive, and so the files that were made from any version of it."""
        self.flush()
        self._do("UPDATE files SET seen=? WHERE substr(version, -?)=?", listing, len(key) + 1, f"!{key}")

    def seen(self, key: str) -> int | None:
        """The last listing that saw a key; None: none did."""
        self.flush()
        row = self._ask("SELECT seen FROM files WHERE key=?", key)
        return row[0] if row else None

    def remove(self, key: str) -> None:
        """Forget a file."""
        self.flush()
        self._do("DELETE FROM files WHERE key=?", key)

    def drop(self, key: str, version: str, why: str) -> None:
        """Note an object that was left out, and is not asked for again."""
        self._do("INSERT OR REPLACE INTO dropped VALUES (?, ?, ?)", key, version, why)
        self.remove(key)

    def dropped(self, key: str) -> str | None:
        """The version of an object that was left out; None: it was not."""
        row = self._ask("SELECT version FROM dropped WHERE key=?", key)
        return row[0] if row else None

    def of_version(self, version: str) -> list[Complete]:
        """The files that were made from one version: those of an archive."""
        self.flush()
        with self._lock:
            rows = self._base.execute(
                "SELECT key, size, version, checksum, mtime_ns FROM files WHERE version=?", (version,)
            ).fetchall()
        return [Complete._make(row) for row in rows]

    def totals(self) -> tuple[int, int]:
        """Files and bytes that are complete."""
        self.flush()
        files, size = self._ask("SELECT count(*), coalesce(sum(size), 0) FROM files")
        return files, size

    def all(self, unseen_since: int | None = None) -> Iterator[Complete]:
        """The files in order of key, a block at a time; those alone that no listing has seen since, if asked."""
        self.flush()
        after = ""
        condition = "" if unseen_since is None else f"AND seen < {int(unseen_since)}"
        while True:
            with self._lock:
                rows = self._base.execute(
                    f"SELECT key, size, version, checksum, mtime_ns FROM files WHERE key > ? {condition} "
                    f"ORDER BY key LIMIT {ROWS_AT_ONCE}",
                    (after,),
                ).fetchall()
            if not rows:
                return
            yield from map(Complete._make, rows)
            after = rows[-1][0]

    def write_manifest(self, destination: Path, address: str) -> Path:
        """Write what is there, from where, as Parquet beside the database; the old manifest is replaced at once.

        Columns: path, size, version (of the object), checksum, source.
        """
        import pyarrow as pa
        import pyarrow.parquet as parquet

        schema = pa.schema(
            [("path", pa.string()), ("size", pa.int64()), ("version", pa.string()), ("checksum", pa.string())],
            metadata={"source": address, "format": "1"},
        )
        target = self.folder / MANIFEST
        temporary = target.with_suffix(".tmp")
        with parquet.ParquetWriter(temporary, schema) as writer:
            block: list[Complete] = []
            for done in self.all():
                block.append(done)
                if len(block) == ROWS_AT_ONCE:
                    writer.write_table(_table(pa, schema, block))
                    block.clear()
            writer.write_table(_table(pa, schema, block))
        os.replace(temporary, target)
        return target

    def _ask(self, statement: str, *values: object) -> Any:
        with self._lock:
            return self._base.execute(statement, values).fetchone()

    def _do(self, statement: str, *values: object) -> None:
        with self._lock:
            self._base.execute(statement, values)


def _table(pa: Any, schema: Any, block: list[Complete]) -> Any:
    columns = list(zip(*block, strict=True))[:4] if block else [()] * 4
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)


def is_complete(done: Complete, version: str, path: Path) -> bool:
    """Whether a file noted as complete is still what was made from ``version``, and untouched since."""
    if done.version != version:
        return False
    try:
        stat = os.lstat(path)
    except OSError:
        return False
    return stat.st_size == done.size and stat.st_mtime_ns == done.mtime_ns
