"""Transfers one object: skips it if complete, retries transient failures, records the result."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass

from flatout.stage.archives.claims import Claims
from flatout.stage.archives.unpacking import Unpacker, is_archive, is_unpacked
from flatout.stage.checksums import checksum_of
from flatout.stage.concurrency import ConcurrencyLimit
from flatout.stage.copying import copy, version_of
from flatout.stage.destination.pruning import remove
from flatout.stage.destination.space import check_room
from flatout.stage.destination.state import Complete, State, is_complete, is_untouched
from flatout.stage.destination.target import Target, in_the_way
from flatout.stage.pictures import Corrupt, PictureChange
from flatout.stage.progress import Progress
from flatout.stage.sources.base import ObjectInfo, Source
from flatout.stage.sources.failures import Failure, InTheWay
from flatout.stage.sources.retries import with_retries
from flatout.stage.verifying import md5_in

CHECK_SPACE_EVERY = 256  # files


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a staging."""

    concurrency: int | None = None  # transfers at once; None: adapted to the store
    wait: bool = False  # wait for another staging to the same destination to end
    prune: bool = False  # remove files that the source no longer has
    prune_most: bool = False  # even if that is more than half of them
    overwrite: bool = False  # replace files that staging did not make, or that were changed since
    min_free: int | None = None  # bytes of the disk to leave free; None: a default
    change: PictureChange | None = None  # how pictures are scaled or re-encoded
    unpack: bool = False  # archives become folders of files


class ObjectTransfer:
    """Transfers objects to one destination, from several threads at once."""

    def __init__(
        self,
        source: Source,
        target: Target,
        state: State,
        options: Options,
        progress: Progress,
        limit: ConcurrencyLimit,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Transfer nothing yet.

        Args:
            source: where objects are read.
            target: where files are written.
            state: records what is complete at the destination.
            options: how to stage.
            progress: counts results.
            limit: of the concurrency; lowered when the store asks to slow down.
            stopped: True ends tries.
        """
        self.source, self.target, self.state, self.options = source, target, state, options
        self.progress, self.limit, self.stopped = progress, limit, stopped
        self.claims = Claims(state)
        self.unpacker = Unpacker(
            source=source,
            target=target,
            state=state,
            claims=self.claims,
            min_free=options.min_free,
            stopped=lambda: self.stopped(),
            refused=progress.refuse,
            failed=progress.fail,
        )
        self.check_existing = not state.is_new

    def run(self, obj: ObjectInfo, listing: int) -> bool:
        """Make an object complete at the destination; returns False if it failed, which ``progress`` counts.

        Args:
            obj: the object.
            listing: number of the listing that saw it.

        Raises:
            DiskFull: there is no room.
            OSError: the destination cannot be written.
        """
        archive = self.options.unpack and is_archive(obj.key)
        try:
            if self._is_complete(obj, archive, listing):
                self.progress.keep(obj.size)
                return True
        except Failure as failure:
            self.progress.fail(failure)
            self._record_seen(obj.key, archive, listing)
            return False
        done = self._transfer(obj, archive, listing)
        if done and (self.progress.copy(obj.size) % CHECK_SPACE_EVERY == 0 or archive):
            check_room(self.target.destination, 1, self.options.min_free)
        if not done:
            self._record_seen(obj.key, archive, listing)
        elif archive:
            self.state.saw(obj.key, listing)  # as a file, which it was before
        return done

    def _record_seen(self, key: str, archive: bool, listing: int) -> None:
        """Record that the source still has an object that failed: files made from it earlier are not gone."""
        if self.state.is_new:
            return
        self.state.saw(key, listing)
        if archive:
            self.state.saw_archive(key, listing)

    def _is_complete(self, obj: ObjectInfo, archive: bool, listing: int) -> bool:
        """True if the object is complete, or was left out earlier for a reason that still holds."""
        if not self.check_existing:
            return False
        if archive:
            self.state.saw(obj.key, listing)
            with self.claims.lock:
                return is_unpacked(obj, self.state, self.target, listing)
        version = version_of(obj, self.options.change)
        # No archive may take the name between this check and the record.
        with self.claims.lock if self.options.unpack else contextlib.nullcontext():
            known = self.state.known(obj.key)
            if known is not None and is_complete(known, version, self.target.path(obj.key)):
                self.state.saw(obj.key, listing)
                return True
        if self.state.dropped(obj.key) == version:
            self.progress.drop(obj.key)
            return True
        adopted = self._adopted(obj, known, version)
        if adopted is not None:
            self.state.add(adopted, listing)
            self.progress.adopt()
        return adopted is not None

    def _adopted(self, obj: ObjectInfo, known: Complete | None, version: str) -> Complete | None:
        """An existing file with the right bytes, by a known checksum; None if the object must be transferred.

        Raises:
            Failure: the file was changed, and may not be replaced.
        """
        path = self.target.path(obj.key)
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        md5 = md5_in(obj) if version == obj.version else None
        if known is not None and known.version == version:
            like, size, verified = known.checksum, known.size, known.verified
        elif md5 is not None:
            like, size, verified = f"md5:{md5}", obj.size, "md5"
        else:
            return None
        if found.st_size != size or checksum_of(path, like) != like:
            if known is not None and known.version == version and not self.options.overwrite:
                raise InTheWay(in_the_way(obj.key, True))
            return None
        # An existing file counts as staging's own only if it is as recorded.
        own = known is not None and not known.adopted and known.version == version and is_untouched(known, path)
        return Complete(obj.key, size, version, like, found.st_mtime_ns, verified, adopted=int(not own))

    def _transfer(self, obj: ObjectInfo, archive: bool, listing: int) -> bool:
        current = obj

        def on_failure(failure: Failure) -> None:
            nonlocal current
            self._before_request(failure)
            if failure.kind == "changed":
                current = self.source.look_again(current)

        try:
            with_retries(
                lambda: self._try(current, archive, listing), on_failure, self.stopped, wrong=("mismatch", "changed")
            )
        except Failure as failure:
            if not self.stopped():
                self._slow_down(failure)
                self.progress.fail(failure)
            return False
        return True

    def _before_request(self, failure: Failure | None) -> None:
        """End a transfer that was stopped; count the failure that this request follows."""
        if self.stopped():
            raise Failure("never", "stopped")
        if failure is not None:
            self._slow_down(failure)
            self.progress.retries += 1

    def _slow_down(self, failure: Failure) -> None:
        if failure.kind == "busy":
            self.limit.slow_down()
            self.progress.slow_downs += 1

    def _try(self, obj: ObjectInfo, archive: bool, listing: int) -> None:
        if archive:
            self.unpacker.unpack(obj, listing)
            return
        if self.options.unpack:
            self._check_name_free(obj, listing)
        try:
            done = copy(obj, self.source, self.target, self.options.change, self._before_request)
        except Corrupt as error:
            change = self.options.change
            if change is None or not change.drop_corrupt:
                raise Failure("never", f"{error}: --drop-corrupt leaves such pictures out") from None
            known = self.state.known(obj.key)
            if known is not None:
                remove(self.target.destination, known)
            self.state.drop(obj.key, version_of(obj, change), str(error))
            self.progress.drop(str(error))
            return
        with self.claims.lock:
            taken = self.claims.other(obj.key, done.version, listing) if self.options.unpack else None
            self.state.add(done, listing)
        if taken is not None:
            raise Failure("never", f"{obj.key}: has replaced {taken}, which arrived at the same time")
        if done.version != obj.version and done.size != obj.size:
            self.progress.change()

    def _check_name_free(self, obj: ObjectInfo, listing: int) -> None:
        taken = self.claims.other(obj.key, version_of(obj, self.options.change), listing)
        if taken is not None:
            raise Failure("never", f"{obj.key}: {taken} has this name already: an archive contains it, too")
