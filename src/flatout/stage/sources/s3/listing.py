"""Parses one page of an S3 listing (ListObjectsV2); keys may hold any characters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple
from urllib.parse import unquote_plus
from xml.etree.ElementTree import Element

from flatout.stage.sources.failures import Failure
from flatout.stage.sources.s3.xml import parse, text_of
from flatout.stage.sources.store_facts import size_in

MOST_EMPTY = 1_000  # pages in a row


class Page(NamedTuple):
    """The content of one page.

    Attributes:
        objects: key, size in bytes, version.
        folders: common prefixes, where a delimiter was asked for.
        unsized: keys whose reported size is invalid, each with the reported value.
        next: parameters of the request for the next page; None: this is the last.
    """

    objects: list[tuple[str, int, str]]
    folders: list[str]
    unsized: list[tuple[str, str]]
    next: dict[str, str] | None


def page_of(body: bytes) -> Page | None:
    """The page in a response; None if it is not a listing or was truncated."""
    found = parse(body)
    if found is None or found.tag != "ListBucketResult":
        return None
    plain: Callable[[str], str] = str
    if text_of(found, "EncodingType") == "url":  # XML allows no control characters, keys do
        plain = _unquoted
    objects, unsized = [], []
    for item in found.iterfind("Contents"):
        key, said = plain(text_of(item, "Key")), text_of(item, "Size")
        size = size_in(said)
        if size is None:
            unsized.append((key, said))
        else:
            objects.append((key, size, _version(text_of(item, "ETag"), size, item)))
    folders = [plain(text_of(item, "Prefix")) for item in found.iterfind("CommonPrefixes")]
    following = None
    truncated = text_of(found, "IsTruncated").strip().lower()
    if truncated not in ("true", "false"):  # every store sends it: without it this is no listing, or part of one
        return None
    if truncated == "true":
        token = text_of(found, "NextContinuationToken")
        last = max([key for key, *_ in objects[-1:]] + [key for key, _ in unsized[-1:]] + folders[-1:], default="")
        if not token and not last:
            return None
        following = {"continuation-token": token} if token else {"start-after": last}
    return Page(objects, folders, unsized, following)


class Advance:
    """Checks that a listing's pages make progress: a circular listing would never end."""

    def __init__(self, where: str) -> None:
        """No page has come yet.

        Args:
            where: names the listing in errors.
        """
        self._where = where
        self._pages = self._empty = 0
        self._mark: tuple[str, str] | None = None
        self._kept_at = 1

    def see(self, page: Page) -> None:
        """Look at the next page; raises Failure if it came before, or if too many in a row were empty."""
        keys = [key for key, *_ in page.objects] + [key for key, _ in page.unsized] + page.folders
        self._empty = 0 if keys else self._empty + 1
        if self._empty >= MOST_EMPTY:
            raise Failure("never", f"{self._where}: {MOST_EMPTY:,} pages without a key came in a row: it has no end")
        if not keys:
            return
        mark = (keys[0], keys[-1])
        if mark == self._mark:
            raise Failure("never", f"{self._where}: the server gives the same page of its listing again: it has no end")
        self._pages += 1
        if self._pages == self._kept_at:  # Brent: in a cycle of any length, a page kept long enough recurs
            self._mark, self._kept_at = mark, 2 * self._kept_at


def _unquoted(text: str) -> str:
    return unquote_plus(text, errors="surrogateescape")


def _version(tag: str, size: int, item: Element) -> str:
    if tag:
        return tag
    try:
        changed = datetime.fromisoformat(text_of(item, "LastModified")).timestamp()
    except ValueError:
        changed = 0.0
    return f"{size}:{changed:.6f}"
