"""One page of an S3 listing (ListObjectsV2), as the store wrote it: keys may hold anything."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple
from urllib.parse import unquote_plus
from xml.etree.ElementTree import Element

from flatout.stage.store_xml import parse, text_of


class Page(NamedTuple):
    """What an answer lists.

    Attributes:
        objects: key, size in bytes, version.
        folders: common prefixes, where a delimiter was asked for.
        next: parameters that the next page is asked for with; None: this is the last.
    """

    objects: list[tuple[str, int, str]]
    folders: list[str]
    next: dict[str, str] | None


def page_of(body: bytes) -> Page | None:
    """The page in an answer; None where it is no listing, or was cut."""
    found = parse(body)
    if found is None or found.tag != "ListBucketResult":
        return None
    plain: Callable[[str], str] = str
    if text_of(found, "EncodingType") == "url":  # XML knows no control characters, keys do
        plain = _unquoted
    objects = []
    for item in found.iterfind("Contents"):
        size = text_of(item, "Size")
        if not size.isdecimal():
            return None
        objects.append((plain(text_of(item, "Key")), int(size), _version(text_of(item, "ETag"), size, item)))
    folders = [plain(text_of(item, "Prefix")) for item in found.iterfind("CommonPrefixes")]
    following = None
    if text_of(found, "IsTruncated").strip() == "true":
        token = text_of(found, "NextContinuationToken")
        last = max([key for key, _, _ in objects[-1:]] + folders[-1:], default="")
        if not token and not last:
            return None
        following = {"continuation-token": token} if token else {"start-after": last}
    return Page(objects, folders, following)


def _unquoted(text: str) -> str:
    return unquote_plus(text, errors="surrogateescape")


def _version(tag: str, size: str, item: Element) -> str:
    if tag:
        return tag
    try:
        changed = datetime.fromisoformat(text_of(item, "LastModified")).timestamp()
    except ValueError:
        changed = 0.0
    return f"{size}:{changed:.6f}"
