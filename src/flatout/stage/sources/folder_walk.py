"""Walks the files below a folder: follows links, and continues past unreadable folders and bad links."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator

from flatout.stage.sources.failures import Failure, failure_of
from flatout.stage.sources.retries import with_retries
from flatout.stage.sources.skipped import Skipped

_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_LEADS_BACK = "a link that leads back to a folder around it"
_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFBLK: "a device", stat.S_IFCHR: "a device"}


class FolderWalk:
    """Walks the tree below a folder."""

    def __init__(self, root: str, skipped: Skipped, stopped: Callable[[], bool]) -> None:
        """Take the folder.

        Args:
            root: its path.
            skipped: collects the skipped items.
            stopped: True ends waiting for a folder that cannot be read at once.
        """
        self._root, self._skipped, self._stopped = root, skipped, stopped
        self._followed: set[str] = set()  # links to folders

    def files(self, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
        """Path below the root and stat result of all regular files below ``prefix``."""
        pending = [(prefix, False)]
        while pending:
            folder, by_link = pending.pop()
            for name, found in self._items(folder):
                key = f"{folder}/{name}" if folder else name
                if isinstance(found, str):
                    self._skipped.add(key, found)
                elif _is_folder(found):
                    # Below a link upwards, plain folders lead down again.
                    if by_link and self._is_around(folder, found):
                        self._skipped.add(key, _LEADS_BACK)
                    else:
                        pending.append((key, by_link or key in self._followed))
                else:
                    yield key, found

    def folders(self, prefix: str) -> list[str]:
        """Names of the folders directly below ``prefix``, sorted; empty if there is no such folder.

        Raises:
            Failure: it cannot be read.
        """
        try:
            names = self._names(prefix)
        except Failure as failure:
            if failure.kind == "gone":
                return []
            raise
        looked = ((name, self._look(prefix, name)) for name in names)
        return sorted(name for name, found in looked if not isinstance(found, str) and found and _is_folder(found))

    def _items(self, folder: str) -> Iterator[tuple[str, os.stat_result | str]]:
        """Name of each item of a folder, with its stat result or the reason to skip it."""
        try:
            names = self._names(folder)
        except Failure as failure:
            if failure.kind == "gone":
                self._skipped.add(folder, "removed while it was listed")
            else:
                self._skipped.fail(folder, str(failure))
            return
        for name in names:
            try:
                found = self._look(folder, name)
            except Failure as failure:
                self._skipped.fail(folder, str(failure))
                continue
            if found is not None:
                yield name, found

    def _names(self, folder: str) -> list[str]:
        path = os.path.join(self._root, folder) if folder else self._root

        def listed() -> list[str]:
            try:
                return os.listdir(path)
            except OSError as error:
                raise failure_of(error, path) from error

        return with_retries(listed, stopped=self._stopped)

    def _look(self, folder: str, name: str) -> os.stat_result | str | None:
        """The stat result of an item, or a reason to skip it; None if it no longer exists. Raises Failure."""
        path = os.path.join(self._root, folder, name)
        found = self._stat(path, os.lstat)
        if found is None or not stat.S_ISLNK(found.st_mode):
            return found and (found if stat.S_ISREG(found.st_mode) or _is_folder(found) else _kind(found))
        found = self._stat(path, os.stat)
        if found is None:
            return "a link that leads nowhere"
        if _is_folder(found):
            self._followed.add(f"{folder}/{name}" if folder else name)
            return _LEADS_BACK if self._is_around(folder, found) else found
        return found if stat.S_ISREG(found.st_mode) else _kind(found)

    def _stat(self, path: str, ask: Callable[[str], os.stat_result]) -> os.stat_result | None:
        """Stat a path; None if it does not exist."""
        try:
            return ask(path)  # the usual case, without the cost of retries
        except OSError as error:
            if error.errno in _NOTHING:
                return None

        def again() -> os.stat_result:
            try:
                return ask(path)
            except OSError as error:
                raise failure_of(error, path) from error

        return with_retries(again, stopped=self._stopped)

    def _is_around(self, folder: str, target: os.stat_result) -> bool:
        """True if ``target`` is ``folder`` or one of its parents: following it would never end."""
        while True:
            try:
                here = os.stat(os.path.join(self._root, folder))
            except OSError:
                return True
            if (here.st_dev, here.st_ino) == (target.st_dev, target.st_ino):
                return True
            if not folder:
                return False
            folder = folder.rpartition("/")[0]


def _is_folder(found: os.stat_result) -> bool:
    return stat.S_ISDIR(found.st_mode)


def _kind(found: os.stat_result) -> str:
    return f"{_KINDS.get(stat.S_IFMT(found.st_mode), 'something')}, and no file"
