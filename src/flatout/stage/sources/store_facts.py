"""Facts in a server's headers: version, size, checksums, range, whether the ETag is an MD5."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import NamedTuple

from flatout.stage.sources.failures import Failure

KINDS = ("crc64nvme", "crc32c", "crc32", "sha256", "sha1")  # cheapest first
_OF_AMAZON = ("x-amz-request-id", "x-amz-id-2")
_CHECKSUM = "x-amz-checksum-"
_ETAG = re.compile(r'(?:W/)?(?:"([^"]*)"|([0-9A-Fa-f]{32}(?:-[0-9]+)?))')  # some listings leave the quotes out
_RANGE = re.compile(r"bytes[ \t]+([0-9]{1,19})-([0-9]{1,19})/(?:[0-9]+|\*)", re.IGNORECASE)
_SIZE = re.compile(r"[0-9]{1,19}")


class Facts(NamedTuple):
    """Facts from the headers of a response.

    Attributes:
        etag: as it was sent; empty: not sent.
        size: in bytes; None: not sent.
        has_md5: whether the ETag is made of MD5 sums, which is not so with keys of a key service or of a client, nor
            on servers that do not speak S3.
        checksums: hex of the bytes' checksums by kind.
        of_parts: the checksums are those of the checksums of the parts.
        parts: number of parts it was stored in; None: not reported.
    """

    etag: str
    size: int | None
    has_md5: bool
    checksums: dict[str, str]
    of_parts: bool
    parts: int | None


def facts_of(headers: Mapping[str, str]) -> Facts:
    """Parse headers; names in any case."""
    told = {name.lower(): value for name, value in headers.items()}
    encryption = told.get("x-amz-server-side-encryption", "")
    by_client = any(name.startswith("x-amz-server-side-encryption-customer-") for name in told)
    is_s3 = any(name in told for name in _OF_AMAZON)
    checksums = {}
    of_parts = told.get(f"{_CHECKSUM}type", "").upper() == "COMPOSITE"
    for kind in KINDS:
        value, dash, _ = told.get(_CHECKSUM + kind, "").partition("-")
        of_parts = of_parts or bool(dash)
        try:
            plain = base64.b64decode(value, validate=True)
        except binascii.Error:
            continue
        if plain:
            checksums[kind] = plain.hex()
    size, parts = told.get("content-length", ""), told.get("x-amz-mp-parts-count", "")
    return Facts(
        etag=told.get("etag", ""),
        size=size_in(size),
        has_md5=is_s3 and not by_client and not encryption.startswith("aws:kms"),
        checksums=checksums,
        of_parts=of_parts,
        parts=size_in(parts),
    )


def size_in(text: str) -> int | None:
    """Parse a number of bytes; None if it is not a number, or is 2**63 or more."""
    found = _SIZE.fullmatch(text.strip())
    size = int(found[0]) if found else None
    return size if size is not None and size < 1 << 63 else None


def is_etag(version: str) -> bool:
    """True if a version is an ETag, not a size with a time."""
    return _ETAG.fullmatch(version) is not None


def is_other_version(etag: str, version: str) -> bool:
    """True if a response's ETag names another version than the listed one; False if either is not an ETag."""
    sent, listed = _ETAG.fullmatch(etag.strip()), _ETAG.fullmatch(version)
    return sent is not None and listed is not None and sent[sent.lastindex or 0] != listed[listed.lastindex or 0]


def see_answer(
    status: int, etag: str, content_range: str, where: str, start: int, length: int | None, version: str
) -> None:
    """Check that a response is of the requested version and range.

    Args:
        status: of the answer: 200 or 206.
        etag: its ETag header; empty: it has none.
        content_range: its Content-Range header; empty: it has none.
        where: names the object in errors.
        start: of the range that was requested.
        length: of that range; None: the whole object was requested.
        version: as listed; empty: any.

    Raises:
        Failure: the response is for another version, or a 206 does not name the requested range.
    """
    if is_other_version(etag, version):
        raise Failure("changed", f"{where}: replaced at the source since it was listed")
    if status != 206:
        return
    found = _RANGE.fullmatch(content_range.strip())
    if length is None:
        raise Failure("mismatch", f"{where}: the server sent a range where the whole object was asked for")
    if found is None or (int(found[1]), int(found[2])) != (start, start + length - 1):
        sent = f"bytes {found[1]}-{found[2]}" if found else "bytes of an unnamed range"
        raise Failure(
            "mismatch", f"{where}: the server sent {sent} where bytes {start}-{start + length - 1} were asked for"
        )
