"""Unpacks archives while reading them; no copy of an archive is stored."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from flatout.errors import DiskFull
from flatout.stage.archives.claims import MARK, Claims
from flatout.stage.archives.members import Member, Members, reading
from flatout.stage.archives.stream import READ_BYTES
from flatout.stage.archives.unfinished import Unfinished
from flatout.stage.destination.safe_paths import refusal
from flatout.stage.destination.space import check_room, free_bytes
from flatout.stage.destination.state import State, is_complete
from flatout.stage.destination.target import Target
from flatout.stage.sources.base import ObjectInfo, Source
from flatout.stage.sources.failures import Failure
from flatout.stage.sources.object_files import RangedFile, StreamedFile

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".zip")


def is_archive(key: str) -> bool:
    return key.lower().endswith(SUFFIXES)


def version_in(obj: ObjectInfo) -> str:
    """The version of every file of an archive."""
    return f"{obj.version}{MARK}{obj.key}"


def unpacked(key: str) -> str:
    """Name under which the state records an unpacked archive: its version and number of files."""
    return f"unpacked {key}"


def is_noted_unpacked(obj: ObjectInfo, noted: str | None) -> bool:
    """True if the record of an archive is for the listed version."""
    return noted is not None and noted.partition(" ")[2] == version_in(obj)


def is_unpacked(obj: ObjectInfo, state: State, target: Target, listing: int) -> bool:
    """True if all files of this version of the archive are present and untouched; marks them as seen."""
    version = version_in(obj)
    noted = state[unpacked(obj.key)]
    if noted is None or not noted.endswith(version):
        return False
    files = state.of_version(version)
    if noted != _noted(len(files), version):  # another object has replaced one
        return False
    if not all(is_complete(done, version, target.path(done.key)) for done in files):
        return False
    for done in files:
        state.saw(done.key, listing)
    return True


@dataclass(frozen=True, kw_only=True)
class Unpacker:
    """Unpacks archives to one destination, several at once.

    Attributes:
        source: where they are read.
        target: where their files are written.
        state: records each file.
        claims: knows which names are taken.
        min_free: bytes of the disk to leave free; None: a default.
        stopped: True ends it and leaves no part of an archive.
        refused: called with each item that is left out.
        failed: called with each file whose name another object has.
    """

    source: Source
    target: Target
    state: State
    claims: Claims
    min_free: int | None
    stopped: Callable[[], bool]
    refused: Callable[[str, str], None]
    failed: Callable[[Failure], None]

    def unpack(self, obj: ObjectInfo, listing: int) -> None:
        """Write the files of an archive into a folder of its name.

        They are named once the whole archive is verified, so a damaged one changes nothing. A top folder of
        the same name is not doubled: ``a.tar`` with ``a/1.jpg`` becomes ``a/1.jpg``. Links and devices are left
        out. Of several files with one name the last one wins, as for ``tar``.

        Args:
            obj: the archive.
            listing: number of the listing that saw it.

        Raises:
            Failure: it cannot be read, is damaged, or differs from the store's.
            DiskFull: there is no room for its files.
            OSError: the destination cannot be written.
        """
        unfinished = Unfinished(self.state.folder, obj.key)
        try:
            within = f"{_stem(obj.key).rpartition('/')[2]}/"
            is_within, verified = self._read(obj, unfinished, within)
            files = self._name_all(obj, unfinished, within if is_within else "", verified, listing)
            self.state[unpacked(obj.key)] = _noted(files, version_in(obj))
        except DiskFull as error:
            raise DiskFull(f"{obj.key}: {error}") from None
        finally:
            unfinished.close()

    def _read(self, obj: ObjectInfo, unfinished: Unfinished, within: str) -> tuple[bool, str]:
        """Read all files; returns whether all are in the folder ``within``, and what they were compared with."""
        key, is_within = obj.key, True
        as_file = RangedFile if self.source.has_ranges(obj) else StreamedFile
        with as_file(self.source, obj) as raw:
            members = Members(obj, self.source, raw, self.refused)
            for member in members:
                name = member.name.removeprefix("./")
                why = refusal(f"{_stem(key)}/{name}", len(str(self.target.destination)))
                if why is not None:
                    self.refused(f"{key}{MARK}{member.name[:80]!r}", why)
                    continue
                is_within = is_within and name.startswith(within)
                self._see_room(member, unfinished.bytes, key)
                if not unfinished.add(name, self._blocks(member, key)):
                    self.refused(f"{key}{MARK}{member.name[:80]!r}", "is there several times: the last one is taken")
        return is_within, members.verified or self.source.unverified

    def _see_room(self, member: Member, before: int, key: str) -> None:
        """Raise Failure if one file alone exceeds the free space, DiskFull if earlier files used it up."""
        room = free_bytes(self.target.destination, self.min_free) + before
        if member.size > room:
            name = f"{key}{MARK}{member.name[:80]!r}"
            raise Failure("never", f"{name}: has {member.size:,} bytes by its header, where {room:,} may be written")
        check_room(self.target.destination, member.size, self.min_free)

    def _blocks(self, member: Member, key: str) -> Iterator[bytes]:
        received = 0
        with contextlib.ExitStack() as stack:
            with reading(key):
                file = stack.enter_context(member.open())
            while True:
                if self.stopped():
                    raise Failure("never", "stopped")
                with reading(key):
                    block = file.read(READ_BYTES)
                if not block:
                    break
                received += len(block)
                if received > member.size:
                    break
                check_room(self.target.destination, len(block), self.min_free)
                yield block
        if received != member.size:
            raise Failure("never", f"{key}: {received} bytes came where the archive names {member.size}")

    def _name_all(self, obj: ObjectInfo, unfinished: Unfinished, within: str, verified: str, listing: int) -> int:
        """Move the files to their names, unless another object owns one; returns the total number of files."""
        version, files = version_in(obj), 0
        for waiting in unfinished:
            files += 1
            key = f"{_stem(obj.key)}/{waiting.name.removeprefix(within)}"
            with self.claims.lock:
                try:
                    other = self.claims.other(key, version, listing)
                    if other is not None:
                        raise Failure("never", f"{key}: {other} is there: {obj.key} has one of that name, too")
                    known = self.state.known(key)
                    if (
                        known is not None
                        and known.checksum == waiting.checksum
                        and is_complete(known, version, self.target.path(key))
                    ):
                        self.state.saw(key, listing)
                    else:
                        done = self.target.place(waiting.path, key, version, waiting.size, waiting.checksum, verified)
                        self.state.add(done, listing)
                except Failure as failure:
                    self.failed(failure)
        return files


def _noted(files: int, version: str) -> str:
    return f"{files} {version}"


def _stem(key: str) -> str:
    lower = key.lower()
    return key[: -max(len(suffix) for suffix in SUFFIXES if lower.endswith(suffix))]
