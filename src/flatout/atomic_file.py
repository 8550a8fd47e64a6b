"""Files that are replaced as a whole: a reader sees the old content or the new one, also after a crash."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Open a file that takes the place of ``path`` when the block ends without an exception.

    The new content is written to a file next to ``path``, on the same file system, and is flushed to disk before the
    rename. If the block raises, ``path`` is unchanged and the new file is removed. A symbolic link is replaced,
    not followed.

    Args:
        path: The file to write or replace; its folder must exist.
        mode: Permissions of the new file before the process's umask.

    Raises:
        OSError: as from the file system, such as a full disk.
    """
    temporary = path.with_name(f".{path.name[:60]}.{secrets.token_hex(6)}.tmp")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, content: str | bytes, mode: int = 0o666) -> None:
    """Write ``content`` (text as UTF-8) so that ``path`` never holds a part of it; see :func:`replacing`."""
    with replacing(path, mode) as file:
        file.write(content.encode() if isinstance(content, str) else content)
