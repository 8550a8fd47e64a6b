"""Protobuf messages by hand, many alike at once: bytes that differ only in some numbers are one numpy array.

This writes some six times the slices a second of the `perfetto` package (docs/measurements/trace.md), whose generated
classes read in the tests what was written.
The wire format: protobuf.dev, "Encoding".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
_VARINT, _FIXED64, _LENGTH = 0, 1, 2


def varint(number: int) -> bytes:
    """A number from 0 on, seven bits a byte, lowest first."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def uint(field: int, number: int) -> bytes:
    """A field that holds a number."""
    return varint(field << 3 | _VARINT) + varint(number)


def message(field: int, content: bytes) -> bytes:
    """A field that holds a message or bytes."""
    return varint(field << 3 | _LENGTH) + varint(len(content)) + content


def text(field: int, content: str) -> bytes:
    """A field that holds a text."""
    return message(field, content.encode("utf-8", "replace"))


@dataclass(frozen=True)
class Column:
    """Numbers that differ from message to message, as ``width`` bytes each."""

    bytes: Bytes  # shape: messages, width

    @property
    def width(self) -> int:
        """Bytes a message."""
        return int(self.bytes.shape[1])


Part = bytes | Column


def uints(field: int, numbers: NDArray[np.int64]) -> list[Part]:
    """A field with another number from 0 on in each message.

    All take as many bytes as the largest needs: a varint may end in zeros, which readers accept.
    """
    width = max((int(numbers.max(initial=0)).bit_length() + 6) // 7, 1)
    found = np.empty((len(numbers), width), np.uint8)
    for place in range(width):
        found[:, place] = (numbers >> 7 * place & 0x7F) | (0x80 if place < width - 1 else 0)
    return [varint(field << 3 | _VARINT), Column(found)]


def fixed64(field: int, numbers: NDArray[np.int64] | NDArray[np.float64]) -> list[Part]:
    """A field of 8 bytes with another number in each message, a float64 or an integer."""
    little = numbers.astype(numbers.dtype.newbyteorder("<"), copy=False)
    return [varint(field << 3 | _FIXED64), Column(np.ascontiguousarray(little).view(np.uint8).reshape(len(numbers), 8))]


def messages(field: int, parts: Sequence[Part]) -> list[Part]:
    """A field that holds a message made of ``parts``; all messages are equally long."""
    length = sum(len(part) if isinstance(part, bytes) else part.width for part in parts)
    return [varint(field << 3 | _LENGTH) + varint(length), *parts]


def rendered(parts: Sequence[Part], count: int) -> Bytes:
    """The bytes of ``count`` messages, one row each."""
    width = sum(len(part) if isinstance(part, bytes) else part.width for part in parts)
    found = np.empty((count, width), np.uint8)
    at = 0
    for part in parts:
        if isinstance(part, bytes):
            found[:, at : at + len(part)] = np.frombuffer(part, np.uint8)
            at += len(part)
        else:
            found[:, at : at + part.width] = part.bytes
            at += part.width
    return found
