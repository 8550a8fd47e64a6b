"""One host of a cluster: stages objects to its own disk, and sends them to other hosts."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from flatout.formats.class_list import CLASSES_FILE
from flatout.stage.checksums import checksum_of
from flatout.stage.concurrency import ConcurrencyLimit
from flatout.stage.copying import version_of
from flatout.stage.destination.lock import destination_lock
from flatout.stage.destination.manifest import write_manifest
from flatout.stage.destination.own_folder import remove_partial
from flatout.stage.destination.space import check_room
from flatout.stage.destination.state import Complete, State, is_complete
from flatout.stage.destination.target import Target
from flatout.stage.progress import Progress
from flatout.stage.selection import write_class_list
from flatout.stage.sources.base import ObjectInfo, StoreOptions
from flatout.stage.sources.failures import Failure
from flatout.stage.sources.open import open_source
from flatout.stage.staging import MAX_CONCURRENCY, begin_destination
from flatout.stage.transfer import ObjectTransfer, Options
from flatout.stage.transfer_pool import TransferPool


class Piece(NamedTuple):
    """A file on its way from one host to another."""

    done: Complete
    data: bytes


class HostCounts(NamedTuple):
    """Counts of one host's transfers."""

    host: str
    copied: int  # from the source
    copied_bytes: int
    taken: int  # from other hosts
    taken_bytes: int
    kept: int
    n_failed: int
    failed_examples: tuple[str, ...]
    changed: int  # pictures that were changed on the way
    n_dropped: int  # pictures that cannot be decoded; left out
    total_files: int
    total_bytes: int


class ClusterHost:
    """Stages on the machine it runs on. Its methods are called one at a time, from elsewhere."""

    def __init__(
        self, address: str, store: StoreOptions, destination: str, options: Options, classes: list[str] | None
    ) -> None:
        """Open source and destination.

        Args:
            address: address; credentials come from this host's own environment.
            store: how the source is reached.
            destination: folder on this host.
            options: how to stage.
            classes: the class list to write; None: not needed.

        Raises:
            UsageError: the destination cannot be used.
        """
        self.folder = Path(destination)
        self.source = open_source(address, store)
        self.folder = begin_destination(self.folder, self.source)
        self._lock = destination_lock(self.folder, options.wait, lambda line: None)
        self._lock.__enter__()
        self.state = State(self.folder)
        self.state.claim(self.folder, self.source.address, self.source.server)
        remove_partial(self.folder)
        self.state.is_new = False  # after a host was lost, everything is requested once more
        self.listing = self.state.begin()
        check_room(self.folder, 1, options.min_free)
        if classes is not None:
            write_class_list(self.folder / CLASSES_FILE, classes, self.state)
        self.progress = Progress()
        self.limit = ConcurrencyLimit(options.concurrency or MAX_CONCURRENCY, fixed=options.concurrency is not None)
        self.target = Target(self.folder, self.state, options.overwrite)
        self.transfer = ObjectTransfer(self.source, self.target, self.state, options, self.progress, self.limit)
        self.taken = self.taken_bytes = 0

    def fetch(self, objects: Sequence[tuple[str, int, str]]) -> list[tuple[str, int, str]]:
        """Transfer objects from the source; returns those that are complete here now.

        Raises:
            DiskFull: there is no room.
            OSError: the disk cannot be written.
        """
        wanted = [ObjectInfo(*obj) for obj in objects]
        pool = TransferPool(lambda obj: self.transfer.run(obj, self.listing), self.limit)
        self.transfer.stopped = lambda: pool.stopped is not None
        pool.run(wanted, lambda: self.progress.copied)
        return [obj for obj in wanted if self._complete(obj)]

    def missing(self, objects: Sequence[tuple[str, int, str]]) -> list[tuple[str, int, str]]:
        """Those that are not complete here; the others count as seen."""
        missing = []
        for obj in (ObjectInfo(*obj) for obj in objects):
            if self._complete(obj):
                self.state.saw(obj.key, self.listing)
                self.progress.keep(obj.size)
            else:
                missing.append(obj)
        return missing  # type: ignore[return-value]

    def give(self, keys: Sequence[str]) -> list[Piece]:
        """Files of this host with their records; missing files are left out."""
        pieces = []
        for key in keys:
            known = self.state.known(key)
            if known is not None:
                try:
                    pieces.append(Piece(known, self.target.path(key).read_bytes()))
                except OSError:
                    continue
        return pieces

    def take(self, pieces: Sequence[Piece]) -> list[str]:
        """Write files of another host; returns the keys of those that passed verification.

        Raises:
            OSError: the disk cannot be written.
        """
        right = []
        for piece in pieces:
            try:
                done = self.target.write(piece.done.key, [piece.data], piece.done.version, piece.done.size)
            except Failure:
                continue  # it stays missing, and is fetched from the source
            if checksum_of(self.target.path(done.key), piece.done.checksum) != piece.done.checksum:
                self.target.path(done.key).unlink(missing_ok=True)
                continue
            self.state.add(piece.done._replace(mtime_ns=done.mtime_ns), self.listing)
            self.taken += 1
            self.taken_bytes += done.size
            right.append(done.key)
        check_room(self.folder, 1, self.transfer.options.min_free)
        return right

    def finish(self) -> HostCounts:
        """Write the manifest and close the destination; returns what this host did."""
        write_manifest(self.state)
        files, size = self.state.totals()
        self.state.close()
        self._lock.__exit__(None, None, None)
        progress = self.progress
        return HostCounts(
            self.name(), progress.copied, progress.copied_bytes, self.taken, self.taken_bytes, progress.kept,
            progress.n_failed, tuple(progress.failed_examples), progress.changed, progress.n_dropped, files, size,
        )  # fmt: skip

    def name(self) -> str:
        """Identifiers of the machine and of the process on it."""
        return f"{socket.gethostname()} ({os.getpid()})"

    def _complete(self, obj: ObjectInfo) -> bool:
        """True if the object is complete here, or was left out because it cannot be decoded."""
        version = version_of(obj, self.transfer.options.change)
        known = self.state.known(obj.key)
        if known is not None and is_complete(known, version, self.target.path(obj.key)):
            return True
        return self.transfer.options.change is not None and self.state.dropped(obj.key) == version
