"""The record of complete files at a destination: a small database that survives ``kill -9``."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from flatout.errors import UsageError
from flatout.stage.destination.own_folder import DATABASE, inode, open_folder

ROWS_AT_ONCE = 50_000
ROWS_TOGETHER = 1_000  # at most, in one commit
RECORD_EVERY_S = 0.01  # files copied since then are copied again after a kill
ANEW = "remove it to check every file against its source again"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
    key TEXT PRIMARY KEY, size INTEGER NOT NULL, version TEXT NOT NULL,
    checksum TEXT NOT NULL, mtime_ns INTEGER NOT NULL, verified TEXT NOT NULL,
    adopted INTEGER NOT NULL DEFAULT 0, suspect INTEGER NOT NULL DEFAULT 0, seen INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS folders (key TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS dropped (key TEXT PRIMARY KEY, version TEXT NOT NULL, why TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


SIZE_ONLY = "size only"
_COLUMNS = "key, size, version, checksum, mtime_ns, verified, adopted, suspect"
_INSERT = f"INSERT OR REPLACE INTO files ({_COLUMNS}, seen) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
# Of states that earlier versions made.
_ADDED = {"verified": ("TEXT", f"'{SIZE_ONLY}'"), "adopted": ("INTEGER", "0"), "suspect": ("INTEGER", "0")}
ONE = f"SELECT {_COLUMNS} FROM files WHERE key=?"
BLOCK = f"SELECT {_COLUMNS} FROM files WHERE key > ? {{}} ORDER BY key LIMIT {ROWS_AT_ONCE}"


class Complete(NamedTuple):
    """A complete file."""

    key: str
    size: int
    version: str  # of the object it was made from
    checksum: str  # of the bytes at the destination: "md5:…", as reported by the store, or "crc32:…"
    mtime_ns: int  # of the file as staging left it, so that later changes are detected
    verified: str = SIZE_ONLY  # the store's checksum or size that it was compared with
    adopted: int = 0  # 1: staging found it with the right bytes: it stays the user's
    suspect: int = 0  # 1: recorded for another folder, and not compared by checksum since


class State:
    """The database of one destination. Its methods may be called from any thread."""

    def __init__(self, destination: Path) -> None:
        """Open or create the database.

        Raises:
            UsageError: it is damaged, or cannot be written.
        """
        self.folder = open_folder(destination)
        self._lock = threading.Lock()
        path = self.folder / DATABASE
        try:
            self._base = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            # The process may die at any moment, and the kernel keeps what was written; after a power failure
            # the files themselves are checked again.
            self._base.execute("PRAGMA journal_mode=WAL")
            self._base.execute("PRAGMA synchronous=OFF")
            self._base.executescript(_SCHEMA)
            for name, kind, value in _missing(self._base):
                self._base.execute(f"ALTER TABLE files ADD COLUMN {name} {kind} NOT NULL DEFAULT {value}")
        except sqlite3.OperationalError as error:  # not caused by its content
            raise UsageError(f"{path}: {error}: see that the disk has room and can be written") from None
        except sqlite3.DatabaseError as error:
            raise UsageError(f"{path}: {error}: {ANEW}") from None

        self._unwritten: dict[str, tuple[Any, ...]] = {}
        self._rows: deque[tuple[Any, ...]] = deque()
        self._seen: deque[tuple[int, str]] = deque()
        self._writing = threading.Lock()
        self._closing = threading.Event()
        self._failure: Exception | None = None
        self.is_new = not any(self._ask(f"SELECT 1 FROM {table} LIMIT 1") for table in ("files", "dropped"))
        self._writer = threading.Thread(target=self._write_on, name="flatout-state", daemon=True)
        self._writer.start()

    def close(self) -> None:
        """Write pending rows, and close the database."""
        self._closing.set()
        self._writer.join()
        self._write_rows()
        with self._lock:
            self._base.close()

    def _write_on(self) -> None:
        """Write pending rows regularly: a commit per row, or waking this thread for it, would slow all others."""
        while not self._closing.wait(RECORD_EVERY_S):
            self._write_rows()

    def _write_rows(self) -> None:
        with self._writing:
            while self._rows or self._seen:
                rows: list[tuple[Any, ...]] = _taken(self._rows)
                # After the rows: an object seen is already recorded, or its row was just written.
                seen = [] if self._rows else _taken(self._seen)
                try:
                    with self._lock:
                        self._base.execute("BEGIN")
                        try:
                            self._base.executemany(_INSERT, rows)
                            self._base.executemany("UPDATE files SET seen=? WHERE key=?", seen)
                        finally:
                            self._base.execute("COMMIT")
                except Exception as error:  # raised in the thread that adds the next row
                    self._failure = error
                for row in rows:
                    if self._unwritten.get(row[0], ()) is row:
                        del self._unwritten[row[0]]

    def flush(self) -> None:
        """Write all pending rows.

        Raises:
            OSError: it could not be.
        """
        self._write_rows()
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise OSError(errno.EIO, f"the state cannot be written: {self._failure}", str(self.folder))

    def __getitem__(self, name: str) -> str | None:
        """The value recorded under a name."""
        row = self._ask("SELECT value FROM about WHERE name=?", name)
        return row[0] if row else None

    def __setitem__(self, name: str, value: str) -> None:
        """Record a value under a name."""
        self._do("INSERT OR REPLACE INTO about VALUES (?, ?)", name, value)

    def claim(self, destination: Path, address: str, endpoint: str = "") -> None:
        """Record the source and the destination.

        Raises:
            UsageError: the destination holds another source, or one of that name on another server.
        """
        before, server = self["source"], self["endpoint"] or ""
        if before is not None and (before, server) != (address, endpoint):
            one, other = (f"{name} at {where}" if server != endpoint and where else name
                          for name, where in ((before, server), (address, endpoint)))  # fmt: skip
            raise UsageError(
                f"{destination}: holds what was staged from {one}, not from {other}: "
                f"choose another folder, or remove {self.folder}"
            )
        self["source"], self["endpoint"] = address, endpoint
        if self["inode"] not in (None, inode(destination)):  # copied from another, or the folder is another
            self._do("UPDATE files SET suspect=1")
        self["destination"], self["inode"] = os.path.realpath(destination), inode(destination)

    def begin(self) -> int:
        """Number of a new listing: files it does not see are gone from the source.

        Raises:
            UsageError: the recorded number is damaged.
        """
        before = self["listing"] or "0"
        if not before.isdecimal():
            raise UsageError(f"{self.folder / DATABASE}: is damaged ({before[:20]!r} is no listing's number): {ANEW}")
        self["listing"] = str(int(before) + 1)
        return int(before) + 1

    def known(self, key: str) -> Complete | None:
        """The complete file of a key; None if there is none."""
        unwritten = self._unwritten.get(key)
        if unwritten is not None:
            return Complete(*unwritten[:-1])
        row = self._ask(ONE, key)
        return Complete(*row) if row else None

    def add(self, done: Complete, listing: int) -> None:
        """Record a complete file: written within RECORD_EVERY_S, by a thread of its own.

        Raises:
            OSError: an earlier one could not be written.
        """
        self._check()
        row = (*done, listing)
        self._unwritten[done.key] = row
        self._rows.append(row)

    def saw(self, key: str, listing: int) -> None:
        """Record that the source still has a key."""
        self._seen.append((listing, key))

    def saw_archive(self, key: str, listing: int) -> None:
        """Record that the source still has an archive, and so the files made from any version of it."""
        self.flush()
        self._do("UPDATE files SET seen=? WHERE substr(version, -?)=?", listing, len(key) + 1, f"!{key}")

    def seen(self, key: str) -> int | None:
        """The last listing that saw a key; None if none did."""
        self.flush()
        row = self._ask("SELECT seen FROM files WHERE key=?", key)
        return row[0] if row else None

    def remove(self, key: str) -> None:
        """Forget a file."""
        self.flush()
        self._do("DELETE FROM files WHERE key=?", key)

    def distrust(self, keys: Iterable[str]) -> None:
        """Record that files are no longer as staged, whatever their size and time."""
        with self._lock:
            self._base.executemany("UPDATE files SET mtime_ns=-1 WHERE key=?", ((key,) for key in keys))

    def drop(self, key: str, version: str, why: str) -> None:
        """Record an object that was left out, so that it is not requested again."""
        self._do("INSERT OR REPLACE INTO dropped VALUES (?, ?, ?)", key, version, why)
        self.remove(key)

    def dropped(self, key: str) -> str | None:
        """The version of an object that was left out; None if it was not."""
        row = self._ask("SELECT version FROM dropped WHERE key=?", key)
        return row[0] if row else None

    def made_folder(self, key: str) -> None:
        """Record a folder that staging made: pruning removes it when it becomes empty."""
        self._do("INSERT OR REPLACE INTO folders VALUES (?)", key)

    def made(self, folder: str) -> bool:
        """True if staging made the folder."""
        return self._ask("SELECT 1 FROM folders WHERE key=?", folder) is not None

    def forget_folder(self, key: str) -> None:
        """Forget a folder."""
        self._do("DELETE FROM folders WHERE key=?", key)

    def of_version(self, version: str) -> list[Complete]:
        """The files that were made from one version: those of an archive."""
        self.flush()
        with self._lock:
            rows = self._base.execute(f"SELECT {_COLUMNS} FROM files WHERE version=?", (version,)).fetchall()
        return [Complete._make(row) for row in rows]

    def totals(self) -> tuple[int, int]:
        """Files and bytes that are complete."""
        self.flush()
        files, size = self._ask("SELECT count(*), coalesce(sum(size), 0) FROM files")
        return files, size

    def verifications(self) -> dict[str, int]:
        """Number of files by what they were compared with."""
        with self._lock:
            return dict(self._base.execute("SELECT verified, count(*) FROM files GROUP BY verified ORDER BY 1"))

    def all(self, unseen_since: int | None = None) -> Iterator[Complete]:
        """Yield the files in order of key; with ``unseen_since`` only those not seen by that listing or later."""
        self.flush()
        condition = "" if unseen_since is None else f"AND seen < {int(unseen_since)}"
        after = ""
        while True:
            with self._lock:
                rows = self._base.execute(BLOCK.format(condition), (after,)).fetchall()
            if not rows:
                return
            yield from map(Complete._make, rows)
            after = rows[-1][0]

    def _ask(self, statement: str, *values: object) -> Any:
        with self._lock:
            return self._base.execute(statement, values).fetchone()

    def _do(self, statement: str, *values: object) -> None:
        with self._lock:
            self._base.execute(statement, values)


def complete_columns(base: sqlite3.Connection) -> None:
    """Add the columns that an earlier version lacks to a database open for reading."""
    if missing := _missing(base):
        more = ", ".join(f"{value} AS {name}" for name, _, value in missing)
        base.execute(f"CREATE TEMP VIEW files AS SELECT *, {more} FROM main.files")


def _missing(base: sqlite3.Connection) -> list[tuple[str, str, str]]:
    there = {column[1] for column in base.execute("PRAGMA main.table_info(files)")}
    return [(name, kind, value) for name, (kind, value) in _ADDED.items() if there and name not in there]


def _taken(rows: deque[Any]) -> list[Any]:
    return [rows.popleft() for _ in range(min(len(rows), ROWS_TOGETHER))]


Identity = tuple[int, int, int, int]  # device, inode, size in bytes, time of change in nanoseconds


def identity(path: Path | str, dir_fd: int | None = None) -> Identity | None:
    """Identity of the file that currently has a name; None if there is none."""
    try:
        return identity_of(os.lstat(path, dir_fd=dir_fd))
    except FileNotFoundError:
        return None


def identity_of(found: os.stat_result) -> Identity:
    """Identifies a file and its state."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def is_untouched(done: Complete, path: Path) -> bool:
    """True if a file has the recorded size and modification time, and is not a link."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return found.st_size == done.size and found.st_mtime_ns == done.mtime_ns and stat.S_ISREG(found.st_mode)


def is_complete(done: Complete, version: str, path: Path) -> bool:
    """True if a file recorded as complete was made from ``version`` and is untouched since."""
    return done.version == version and not done.suspect and is_untouched(done, path)
