"""A text file as lines, streamed: carriage returns, colours, wrong encodings, lines without end."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from typing import IO

BLOCK = 1 << 20  # bytes read at a time
LONGEST_LINE = 1 << 16  # bytes; what a line has beyond is left out
KEPT = 1000  # characters of a line that are kept; a quote is shorter, and cut after secrets are out
_ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_SEPARATOR = re.compile(rb"[\r\n]")
_BACKSPACES = re.compile(rb"[\x08\x00]+")
_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_HEAD = 4096  # bytes by which UTF-16 without a byte order mark is known
# UTF-8 that was read as Windows-1252 and written again: a dash, a multiplication sign, a block of a progress bar.
_MENDED = re.compile("â€[“”™œ¦¢\u0153\u009d]|Ã—|â”[\u0080-\u00ff]|Â[ ±µ·]")


def lines(
    file: IO[bytes], wanted: Callable[[bytes], object], block_wanted: Callable[[bytes], object] = bool
) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that ``wanted`` accepts, with their numbers from 1.

    Progress bars return the carriage without a new line: each of their states is a piece of the same line number.

    Args:
        file: Opened for bytes; read in blocks, so that memory does not grow with it.
        wanted: Sees each piece as it stands in the file; the pieces it refuses cost no more than this call.
        block_wanted: Sees each block first; in those that it refuses, lines are only counted.
    """
    number, carried, skipping = 1, b"", False
    for block in _utf8_blocks(file):
        if b"\r\n" in block or block.endswith(b"\r") or block.startswith(b"\n"):
            block = block.replace(b"\r\n", b"\n")
        end = _SEPARATOR.search(block)
        if end is not None and not block_wanted(block):
            piece = b"" if skipping else carried + block[: end.start()]
            if wanted(piece):
                yield number, clean(piece)
            number += block.count(b"\n")
            carried = block[max(block.rfind(b"\n"), block.rfind(b"\r")) + 1 :]
            carried, skipping = (b"", True) if len(carried) > LONGEST_LINE else (carried, False)
            continue
        rows = block.split(b"\n")
        last = len(rows) - 1
        for place, row in enumerate(rows):
            if b"\r" in row:
                *pieces, rest = row.split(b"\r")
            else:
                pieces, rest = [], row
            for piece in pieces:
                if carried or skipping:
                    piece, carried, skipping = (b"" if skipping else carried + piece), b"", False
                if wanted(piece):
                    yield number, clean(piece)
            if place == last:
                if not skipping:
                    carried += rest
                if len(carried) > LONGEST_LINE:
                    if wanted(carried[:LONGEST_LINE]):
                        yield number, clean(carried[:LONGEST_LINE])
                    carried, skipping = b"", True
                break
            piece = rest
            if carried or skipping:
                piece, carried, skipping = (b"" if skipping else carried + rest), b"", False
            if wanted(piece):
                yield number, clean(piece)
            number += 1
    if carried and wanted(carried):
        yield number, clean(carried)


def _utf8_blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Blocks of the file; UTF-16, as some shells redirect output, becomes UTF-8."""
    block = file.read(BLOCK)
    encoding = utf16(block)
    if encoding is None:
        yield block.removeprefix(codecs.BOM_UTF8)
        while block := file.read(BLOCK):
            yield block
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    block = block[2:] if block[:2] in _UTF16 else block
    while block:
        yield decoder.decode(block).encode("utf-8", "replace")
        block = file.read(BLOCK)


def utf16(head: bytes) -> str | None:
    """The UTF-16 codec of a file by its byte order mark, else by zeros in every other byte; None: it is none."""
    head = head[:_HEAD]
    even, odd = head[::2].count(0), head[1::2].count(0)
    half = len(head) // 2
    if head[:2] in _UTF16 or half < 8:
        return _UTF16.get(head[:2])
    if odd > 0.7 * half and even < 0.05 * half:
        return "utf-16-le"
    return "utf-16-be" if even > 0.7 * half and odd < 0.05 * half else None


def clean(piece: bytes) -> bytes:
    """Without colours, cursor movements, backspaces and what goes beyond the longest line."""
    if len(piece) > LONGEST_LINE:
        piece = piece[:LONGEST_LINE]
    if b"\x1b" in piece:
        piece = _ANSI.sub(b"", piece)
    if b"\x08" in piece or b"\x00" in piece:
        piece = _BACKSPACES.sub(b"", piece)
    return piece


def decoded(piece: bytes) -> str:
    """Text of a line: UTF-8, also if it was encoded twice, else Latin-1."""
    try:
        text = piece.decode()
    except UnicodeDecodeError:
        return piece.decode("cp1252", "replace")
    if not text.isascii() and _MENDED.search(text):
        try:
            return text.encode("cp1252").decode()
        except UnicodeError:
            return text
    return text


def quoted(text: str) -> str:
    """The line with single spaces, as far as it is kept."""
    text = " ".join(text.split())
    return text if len(text) <= KEPT else f"{text[:KEPT]}…"
