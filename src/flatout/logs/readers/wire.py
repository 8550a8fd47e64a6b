"""Fields of a protobuf message, without its description: protobuf.dev, "Encoding"."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value: varints as int, all else as its bytes. What is malformed ends it."""
    place, end = 0, len(data)
    while place < end:
        key, place = _varint(data, place)
        kind = key & 7
        if kind == _VARINT:
            value, place = _varint(data, place)
            yield key >> 3, value
            continue
        if kind == _LENGTH:
            size, place = _varint(data, place)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            return
        if place + size > end:
            return
        yield key >> 3, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A number and the place behind it; cut off, it counts as ended."""
    value = shift = 0
    end = min(len(data), place + 10)
    while place < end:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place += 1
        if byte < 0x80:
            return value, place
        shift += 7
    return value, len(data)


def double(value: int | bytes) -> float:
    """A field of 8 bytes."""
    return float(struct.unpack("<d", value)[0]) if isinstance(value, bytes) and len(value) == 8 else float("nan")


def single(value: int | bytes) -> float:
    """A field of 4 bytes."""
    return float(struct.unpack("<f", value)[0]) if isinstance(value, bytes) and len(value) == 4 else float("nan")


def text(value: int | bytes) -> str:
    """A field that holds text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
