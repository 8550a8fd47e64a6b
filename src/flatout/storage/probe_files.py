"""Files for measuring a storage that has none."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flatout.errors import UsageError
from flatout.stage.destination.space import check_room
from flatout.storage.page_cache import drop

# Of ImageNet's mean size.
FILES, FILE_BYTES = 512, 110_000
LARGE_BYTES, BLOCK_BYTES = 64 << 20, 1 << 20


@contextmanager
def written_files(folder: Path) -> Iterator[Path]:
    """Files for a measurement, in a new folder below ``folder``; removed afterwards.

    Raises:
        UsageError: the folder cannot be written, or has too little space.
    """
    try:
        own = Path(tempfile.mkdtemp(prefix=".flatout-storage-", dir=folder))
    except OSError as error:
        raise UsageError(f"--write: {folder}: {error.strerror or error}") from None
    try:
        check_room(
            folder,
            FILES * FILE_BYTES + LARGE_BYTES,
            advice="--write needs that much: make room, or measure a folder on another disk",
        )
        draw = random.Random(0)
        for number in range(FILES):
            (own / f"{number}.bin").write_bytes(draw.randbytes(FILE_BYTES))
        with (own / "large.bin").open("wb") as file:
            for _ in range(LARGE_BYTES // BLOCK_BYTES):
                file.write(draw.randbytes(BLOCK_BYTES))
        drop(own.iterdir(), written=True)
        yield own
    except OSError as error:
        raise UsageError(f"--write: {folder}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(own, ignore_errors=True)
