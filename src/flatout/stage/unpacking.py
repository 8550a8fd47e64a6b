"""Archives unpacked while they are read: their files appear at the destination, and no copy of the archive."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

from flatout.stage.failures import Failure
from flatout.stage.names import refusal
from flatout.stage.origins import Entry, Origin
from flatout.stage.ranged_file import RangedFile
from flatout.stage.state import State, is_complete
from flatout.stage.streamed_file import StreamedFile
from flatout.stage.target import Target

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".zip")
READ_BYTES = 1 << 20
MARK = "!"  # between the version of an archive and its key, in the version of its files


def is_archive(key: str) -> bool:
    """Whether the name is that of an archive."""
    return key.lower().endswith(SUFFIXES)


def archive_of(version: str) -> str | None:
    """The key of the archive that a file comes from; None: it comes from none."""
    return version.partition(MARK)[2] or None


def version_in(entry: Entry) -> str:
    """The version of every file of an archive."""
    return f"{entry.version}{MARK}{entry.key}"


def is_unpacked(entry: Entry, state: State, target: Target, listing: int) -> bool:
    """Whether all files of this version of the archive are there, untouched; they count as seen then."""
    version = version_in(entry)
    if state[f"unpacked {entry.key}"] != version:
        return False
    files = state.of_version(version)
    if not all(is_complete(done, version, target.path(done.key)) for done in files):
        return False
    for done in files:
        state.saw(done.key, listing)
    return True


def unpack(
    entry: Entry,
    origin: Origin,
    target: Target,
    state: State,
    listing: int,
    stopped: Callable[[], bool],
    refused: Callable[[str], None],
) -> int:
    """Write the files of an archive into a folder that has its name; gives their number.

    A folder of that name inside the archive is left out, so that ``a.tar`` with ``a/1.jpg`` gives ``a/1.jpg``. Files
    that are there already, from this version of the archive, are not written again. Links and devices are left out.

    Args:
        entry: the archive.
        origin: where it is.
        target: where its files go.
        state: notes each of them.
        listing: number of the listing that saw it.
        stopped: asked after each file; True ends it, without the note that all is there.
        refused: told what is left out.

    Raises:
        Failure: it cannot be read, or is no such archive.
        OSError: the destination cannot be written.
    """
    version, folder = version_in(entry), _stem(entry.key)
    within = folder.rpartition("/")[2] + "/"
    files = 0
    try:
        as_file = RangedFile if origin.has_ranges(entry) else StreamedFile
        with as_file(origin, entry) as raw, io.BufferedReader(raw, READ_BYTES) as file:
            for name, size, opened in _members(entry.key, file, refused):
                key = f"{folder}/{name.removeprefix('./').removeprefix(within)}"
                why = refusal(key, len(str(target.destination)))
                if why is not None:
                    refused(f"{entry.key}{MARK}{name[:80]!r}: {why}")
                    continue
                known = state.known(key)
                if known is not None and is_complete(known, version, target.path(key)):
                    state.saw(key, listing)
                else:
                    state.add(target.write(key, _blocks(opened(), size, key), version, size), listing)
                files += 1
                if stopped():
                    return files
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, gzip.BadGzipFile, EOFError) as error:
        raise Failure("never", f"{entry.key}: no archive that can be read: {error}") from None
    state[f"unpacked {entry.key}"] = version
    return files


def _members(key: str, file: Any, refused: Callable[[str], None]) -> Iterator[tuple[str, int, Callable[[], IO[bytes]]]]:
    """Name, size and opener of each regular file, in the order in which the archive holds them."""
    if key.lower().endswith(".zip"):
        with zipfile.ZipFile(file) as archive:
            for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
                if info.is_dir():
                    continue
                if info.flag_bits & 1:
                    raise Failure("never", f"{key}: encrypted archives are not unpacked")
                yield info.filename, info.file_size, lambda info=info: archive.open(info)  # type: ignore[misc]
        return
    with tarfile.open(fileobj=file, mode="r:*") as tar:
        for member in tar:
            tar.members = []  # type: ignore[attr-defined]  # pyright: ignore  # else all stay in memory
            if member.isreg():
                yield member.name, member.size, lambda member=member: tar.extractfile(member)  # type: ignore[misc]
            elif not member.isdir():
                refused(f"{key}{MARK}{member.name[:80]!r}: a link or a device")


def _blocks(file: Any, size: int, key: str) -> Iterator[bytes]:
    received = 0
    with file:
        while block := file.read(READ_BYTES):
            received += len(block)
            yield block
    if received != size:
        raise Failure("never", f"{key}: {received} bytes came where the archive names {size}")


def _stem(key: str) -> str:
    lower = key.lower()
    return key[: -max(len(suffix) for suffix in SUFFIXES if lower.endswith(suffix))]
