"""What a server says of an object besides its bytes: whether its ETag is an MD5, and which checksums it keeps."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import NamedTuple

KINDS = ("crc64nvme", "crc32c", "crc32", "sha256", "sha1")  # cheapest first
_OF_AMAZON = ("x-amz-request-id", "x-amz-id-2")
_CHECKSUM = "x-amz-checksum-"


class Facts(NamedTuple):
    """From the headers of an answer.

    Attributes:
        etag: as it was sent; empty: none was.
        size: in bytes; None: it was not sent.
        has_md5: whether the ETag is made of MD5 sums, which it is not with keys of a key service or of a client, nor
            on servers that do not speak S3.
        checksums: hex of the bytes' checksums by kind.
        of_parts: the checksums are those of the checksums of the parts.
        parts: how many parts it was stored in; None: it was not said.
    """

    etag: str
    size: int | None
    has_md5: bool
    checksums: dict[str, str]
    of_parts: bool
    parts: int | None


def facts_of(headers: Mapping[str, str]) -> Facts:
    """What headers say; their names may be in any case."""
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
        size=int(size) if size.isdecimal() else None,
        has_md5=is_s3 and not by_client and not encryption.startswith("aws:kms"),
        checksums=checksums,
        of_parts=of_parts,
        parts=int(parts) if parts.isdecimal() else None,
    )
