"""Arrays in a packed stream, such as npz and nrrd in gzip: read once from front to back, never held as a whole."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from flatout.errors import UsageError
from flatout.formats.volume_chunks import Triple
from flatout.volumes.sources.base import ArraySource

_SKIP_BYTES = 1 << 20


class Readable(Protocol):
    """A stream of bytes: of a file, or of what unpacks one."""

    def read(self, size: int = -1, /) -> bytes: ...

    def close(self) -> None: ...


class StreamSource(ArraySource):
    """Voxels in C order z, y, x behind each other in a stream.

    Args:
        path: of the file.
        open_stream: opens the stream at the first voxel.
        shape: voxels.
        dtype: with its byte order.
        spacing: along z, y, x; None: the file does not say.
    """

    crops = False

    def __init__(
        self,
        path: Path,
        open_stream: Callable[[], Readable],
        shape: Triple,
        dtype: np.dtype[Any],
        spacing: tuple[float, float, float] | None = None,
    ) -> None:
        self.path, self.shape, self.dtype = path, shape, dtype
        if spacing is not None:
            self.spacing, self.says_spacing = spacing, True
        self._open = open_stream
        self._total = math.prod(shape) * dtype.itemsize
        self._stream: Readable | None = None
        self._at = 0  # bytes of voxels read so far

    def read(self, z0: int, z1: int, y0: int, y1: int) -> npt.NDArray[Any]:
        """Planes z0 to z1; cheap only from front to back."""
        _, height, width = self.shape
        row = width * self.dtype.itemsize
        out = np.empty((z1 - z0, y1 - y0, width), self.dtype)
        for z in range(z0, z1):
            self._seek((z * height + y0) * row)
            self._fill(memoryview(out[z - z0]).cast("B"))
        return out

    def _seek(self, offset: int) -> None:
        if self._stream is None or offset < self._at:
            self.close()
            self._stream, self._at = self._open(), 0
        while self._at < offset:
            self._fill(memoryview(bytearray(min(offset - self._at, _SKIP_BYTES))))

    def _fill(self, room: memoryview) -> None:
        assert self._stream is not None
        got = 0
        try:
            while got < len(room):
                piece = self._stream.read(len(room) - got)
                if not piece:
                    raise EOFError("it ends early")
                room[got : got + len(piece)] = piece
                got += len(piece)
            if self._at + got == self._total:
                while self._stream.read(_SKIP_BYTES):  # to the end, where the checksum of gzip and zip is compared
                    pass
        except (EOFError, OSError, ValueError, zlib.error) as error:
            raise UsageError(
                f"{self.path}: it is cut off or damaged after {self._at + got:,} of {self._total:,} bytes ({error}):"
                " get it again"
            ) from None
        self._at += got

    def close(self) -> None:
        """Close the stream."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
