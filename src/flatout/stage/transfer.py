"""One object of a staging: is it there, may it be asked for now, how often is it tried, what becomes of it."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass

from flatout.stage.archives.unpacking import Unpacker, is_archive, is_unpacked
from flatout.stage.checksums import checksum_of
from flatout.stage.concurrency import ConcurrencyLimit
from flatout.stage.copying import copy, version_of
from flatout.stage.destination.claims import Claims
from flatout.stage.destination.pruning import remove
from flatout.stage.destination.space import check_room
from flatout.stage.destination.state import Complete, State, is_complete, is_untouched
from flatout.stage.destination.target import Target, in_the_way
from flatout.stage.pictures import Corrupt, PictureChange
from flatout.stage.progress import Progress
from flatout.stage.sources.base import ObjectInfo, Source
from flatout.stage.sources.failures import Failure, InTheWay
from flatout.stage.sources.retries import retry
from flatout.stage.verifying import md5_in

CHECK_SPACE_EVERY = 256  # files


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to stage."""

    jobs: int | None = None  # so many at once, always; None: found by climbing
    wait: bool = False  # wait for another staging to the same place
    prune: bool = False  # remove files that the source no longer has
    prune_most: bool = False  # also where that is more than half of them
    overwrite: bool = False  # replace files that staging did not make, or that were changed since
    keep_free: int | None = None  # bytes of the disk to leave to others; None: a default
    change: PictureChange | None = None  # what is done to pictures on the way
    unpack: bool = False  # archives become folders of files


class ObjectTransfer:
    """Brings objects to one destination, from several threads at once."""

    def __init__(
        self,
        origin: Source,
        target: Target,
        state: State,
        options: Options,
        progress: Progress,
        width: ConcurrencyLimit,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Take what is needed.

        Args:
            origin: where objects are.
            target: where they go.
            state: of the destination.
            options: how.
            progress: is counted in.
            width: how many at once; a store that asks to go slower lowers it.
            stopped: True ends tries.
        """
        self.origin, self.target, self.state, self.options = origin, target, state, options
        self.progress, self.width, self.stopped = progress, width, stopped
        self.claims = Claims(state)
        self.unpacker = Unpacker(
            origin=origin,
            target=target,
            state=state,
            claims=self.claims,
            keep_free=options.keep_free,
            stopped=lambda: self.stopped(),
            refused=progress.refuse,
            failed=progress.fail,
        )
        self.looks_first = not state.is_new  # files may be there already

    def bring(self, entry: ObjectInfo, listing: int) -> bool:
        """See that an object is complete at the destination; False where it failed, which is counted and named.

        Args:
            entry: the object.
            listing: number of the listing that saw it.

        Raises:
            DiskFull: there is no room.
            OSError: the destination cannot be written.
        """
        archive = self.options.unpack and is_archive(entry.key)
        try:
            if self._is_there(entry, archive, listing):
                self.progress.keep(entry.size)
                return True
        except Failure as failure:
            self.progress.fail(failure)
            self._saw(entry.key, archive, listing)
            return False
        done = self._tried(entry, archive, listing)
        if done and (self.progress.copy(entry.size) % CHECK_SPACE_EVERY == 0 or archive):
            check_room(self.target.destination, 1, self.options.keep_free)
        if not done:
            self._saw(entry.key, archive, listing)
        elif archive:
            self.state.saw(entry.key, listing)  # as a file, where it was one before
        return done

    def _saw(self, key: str, archive: bool, listing: int) -> None:
        """Note that the source still has an object that did not come: what was made from it before is not gone."""
        if self.state.is_new:
            return
        self.state.saw(key, listing)
        if archive:
            self.state.saw_archive(key, listing)

    def _is_there(self, entry: ObjectInfo, archive: bool, listing: int) -> bool:
        """Whether it is complete, or was left out before for a reason that still holds."""
        if not self.looks_first:
            return False
        if archive:
            self.state.saw(entry.key, listing)
            with self.claims.lock:
                return is_unpacked(entry, self.state, self.target, listing)
        version = version_of(entry, self.options.change)
        # Where archives are unpacked, none may take the name between the look and the note.
        with self.claims.lock if self.options.unpack else contextlib.nullcontext():
            known = self.state.known(entry.key)
            if known is not None and is_complete(known, version, self.target.path(entry.key)):
                self.state.saw(entry.key, listing)
                return True
        if self.state.dropped(entry.key) == version:
            self.progress.drop(entry.key)
            return True
        adopted = self._adopted(entry, known, version)
        if adopted is not None:
            self.state.add(adopted, listing)
            self.progress.adopt()
        return adopted is not None

    def _adopted(self, entry: ObjectInfo, known: Complete | None, version: str) -> Complete | None:
        """A file that lies there and has the right bytes, by a checksum that is known; None: it has to be fetched.

        Raises:
            Failure: it has been changed, and may not be replaced.
        """
        path = self.target.path(entry.key)
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        md5 = md5_in(entry) if version == entry.version else None
        if known is not None and known.version == version:
            like, size, verified = known.checksum, known.size, known.verified
        elif md5 is not None:
            like, size, verified = f"md5:{md5}", entry.size, "md5"
        else:
            return None
        if found.st_size != size or checksum_of(path, like) != like:
            if known is not None and known.version == version and not self.options.overwrite:
                raise InTheWay(in_the_way(entry.key, True))
            return None
        # Of what lay there before, that alone is staging's own which is as it was noted.
        own = known is not None and not known.adopted and known.version == version and is_untouched(known, path)
        return Complete(entry.key, size, version, like, found.st_mtime_ns, verified, adopted=int(not own))

    def _tried(self, entry: ObjectInfo, archive: bool, listing: int) -> bool:
        now = entry

        def look_again(failure: Failure) -> None:
            nonlocal now
            self._attend(failure)
            if failure.kind == "changed":
                now = self.origin.look_again(now)

        try:
            retry(lambda: self._once(now, archive, listing), look_again, self.stopped, wrong=("mismatch", "changed"))
        except Failure as failure:
            if not self.stopped():
                self._slower(failure)
                self.progress.fail(failure)
            return False
        return True

    def _attend(self, failure: Failure | None) -> None:
        if self.stopped():
            raise Failure("never", "stopped")
        if failure is not None:
            self._slower(failure)
            self.progress.retries += 1

    def _slower(self, failure: Failure) -> None:
        if failure.kind == "busy":
            self.width.busy()
            self.progress.slow_downs += 1

    def _once(self, entry: ObjectInfo, archive: bool, listing: int) -> None:
        if archive:
            self.unpacker.unpack(entry, listing)
            return
        if self.options.unpack:
            self._see_free(entry, listing)
        try:
            done = copy(entry, self.origin, self.target, self.options.change, self._attend)
        except Corrupt as error:
            change = self.options.change
            if change is None or not change.drop_corrupt:
                raise Failure("never", f"{error}: --drop-corrupt leaves such pictures out") from None
            known = self.state.known(entry.key)
            if known is not None:
                remove(self.target.destination, known)
            self.state.drop(entry.key, version_of(entry, change), str(error))
            self.progress.drop(str(error))
            return
        with self.claims.lock:
            taken = self.claims.other(entry.key, done.version, listing) if self.options.unpack else None
            self.state.add(done, listing)
        if taken is not None:
            raise Failure("never", f"{entry.key}: has taken the place of {taken}, which came at the same time")
        if done.version != entry.version and done.size != entry.size:
            self.progress.change()

    def _see_free(self, entry: ObjectInfo, listing: int) -> None:
        taken = self.claims.other(entry.key, version_of(entry, self.options.change), listing)
        if taken is not None:
            raise Failure("never", f"{entry.key}: {taken} is there: an archive has one of that name, too")
