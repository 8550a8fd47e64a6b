"""Files on web servers: the addresses of a list, or a single one."""

from __future__ import annotations

import functools
import re
import threading
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from flatout.errors import UsageError
from flatout.stage.sources.base import LIST_SUFFIXES, ObjectInfo, Source
from flatout.stage.sources.failures import Failure, status_failure
from flatout.stage.sources.http_get import PlainGets
from flatout.stage.sources.http_requests import HttpRequests, range_headers, wanted_pieces
from flatout.stage.sources.retries import retry_budget_s, with_retries
from flatout.stage.sources.store_facts import Facts, facts_of, size_in

HEAD_CONCURRENCY = 32  # for sizes
LIST_BYTES = 1 << 30
UNREADABLE = "unreadable"  # version of a file whose size is unknown: reading it raises the reason
# Responses to HEAD where a GET may still succeed: addresses signed for GET, servers without HEAD.
_NO_HEAD = (400, 401, 403, 404, 405, 406, 501)
_RANGE_SIZE = re.compile(r"bytes (?:0-0|\*)/([0-9]+)")


class WebSource(Source):
    """Addresses by HTTP(S). Sizes and versions come from HEAD requests, made during the transfer.

    Keys are the paths below the list's own folder; those of other servers begin with the server's name. Query
    strings may hold signatures, so they are sent with the request but never stored or printed.
    """

    def __init__(self, address: str) -> None:
        """Read the list.

        Args:
            address: address of a list (``.txt``, ``.lst``) or of one file, or a local list.

        Raises:
            UsageError: it cannot be read, names nothing, or holds credentials.
        """
        self._requests = HttpRequests(follow=True)
        self._gets = PlainGets()
        self._ranges: dict[str, bool] = {}  # server -> True if it serves ranges
        self._urls: dict[str, str] = {}
        self._failures: dict[str, Failure] = {}  # of files whose size could not be requested
        web = address.startswith(("http://", "https://"))
        is_list = address.partition("?")[0].partition("#")[0].endswith(LIST_SUFFIXES)
        self.address = shown(address) if web else str(Path(address).absolute())
        why = _why_not(address) if web else None
        if why is not None:
            raise UsageError(f"{self.address!r} {why}")
        base = urljoin(address.partition("?")[0], ".") if web else ""
        if not is_list:
            self._add(address, base, self.address)
            return
        try:
            text = self._list(address) if web else Path(address).read_text("utf-8")
        except (Failure, OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{self.address}: the list cannot be read: {error}") from None
        for number, line in enumerate(text.splitlines(), 1):
            word = line.split("#")[0].strip()
            if word:
                self._add(word, base, f"{self.address}, line {number}")
        if not self._urls:
            raise UsageError(f"{self.address}: no addresses in it: write one a line")

    def objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield all files below ``prefix`` in the list's order; one without a size fails when it is read."""
        keys = iter([key for key in self._urls if key.startswith(f"{prefix}/" if prefix else "")])
        waiting: deque[Future[ObjectInfo]] = deque()
        ended = threading.Event()
        with ThreadPoolExecutor(HEAD_CONCURRENCY, "flatout-head") as pool:
            try:
                while True:
                    while len(waiting) < 4 * HEAD_CONCURRENCY and (key := next(keys, None)) is not None:
                        waiting.append(pool.submit(self._described, key, ended))
                    if not waiting:
                        return
                    yield waiting.popleft().result()
            finally:
                ended.set()
                pool.shutdown(wait=True, cancel_futures=True)

    def folders(self, prefix: str = "") -> list[str]:
        """Names of the folders directly below ``prefix``, sorted."""
        start = f"{prefix}/" if prefix else ""
        rests = (key.removeprefix(start) for key in self._urls if key.startswith(start))
        return sorted({rest.partition("/")[0] for rest in rests if "/" in rest})

    def stream(
        self, obj: ObjectInfo, buffer: memoryview, start: int = 0, length: int | None = None
    ) -> Generator[memoryview, None, None]:
        """The bytes of a file, or of a range of the version seen before, in pieces."""
        if obj.version == UNREADABLE and (failure := self._failures.get(obj.key)) is not None:
            raise failure
        url = self._urls[obj.key]
        read = functools.partial(self._read, obj, start, length)
        yield from self._gets.stream(url, buffer, read, shown(url), start, length, obj.version)

    def facts(self, obj: ObjectInfo, part: int | None = None) -> Facts | None:
        """The server's report about a file; None if it cannot be queried."""
        if part is not None:
            return None
        url = self._urls[obj.key]
        try:
            answer = self._requests.request("HEAD", url, shown(url))
        except Failure:  # the next request reports the reason
            return None
        return facts_of(answer.headers) if answer.status == 200 else None

    def has_ranges(self, obj: ObjectInfo) -> bool:
        """True if the server serves part of a file; each server is asked once."""
        url = self._urls[obj.key]
        server = urlsplit(url).netloc
        if server not in self._ranges and obj.size > 1:
            answer = self._requests.request("GET", url, shown(url), range_headers("", 0, 1))
            self._ranges[server] = answer.status == 206
            answer.close()  # without the body: it may be all of the file
        return self._ranges.get(server, True)

    def _read(self, obj: ObjectInfo, start: int, length: int | None) -> Iterator[bytes]:
        url = self._urls[obj.key]
        answer = self._get(url, range_headers(obj.version, start, length))
        yield from wanted_pieces(self._requests, answer, shown(url), start, length, obj.version)

    def _add(self, word: str, base: str, where: str) -> None:
        """Parse an address of the list; a relative one is resolved below ``base``."""
        try:
            url = urljoin(base, word) if base else word
        except ValueError:
            url = word
        why = _why_not(url)
        if why is not None:
            raise UsageError(f"{where}: {shown(url)!r} {why}")
        plain = url.partition("?")[0].partition("#")[0]
        inside = bool(base) and plain.startswith(base)
        parts = urlsplit(plain)
        key = unquote(plain.removeprefix(base) if inside else f"{parts.hostname}{parts.path}")
        if self._urls.setdefault(key, url) != url:
            raise UsageError(f"{where}: two addresses give the same name: {key}")

    def _described(self, key: str, ended: threading.Event) -> ObjectInfo:
        """A file with its size and version."""
        url = self._urls[key]
        try:
            return with_retries(
                lambda: self._asked(key, url),
                self.tell_failure,
                lambda: ended.is_set() or self.stopped(),
                lambda: self._give_up_s(url),
            )
        except Failure as failure:
            self._failures[key] = failure
            return ObjectInfo(key, 0, UNREADABLE)

    def _asked(self, key: str, url: str) -> ObjectInfo:
        answer = self._requests.request("HEAD", url, shown(url))
        size = answer.headers.get("Content-Length", "")
        if answer.status in _NO_HEAD or answer.status == 206 or (answer.status == 200 and size_in(size) is None):
            # Request the first byte only; a server without ranges sends the headers of the whole file.
            answer = self._requests.request("GET", url, shown(url), range_headers("", 0, 1))
            answer.close()
            whole = _RANGE_SIZE.fullmatch(answer.headers.get("Content-Range", ""))
            size = answer.headers.get("Content-Length", "") if answer.status == 200 else whole[1] if whole else ""
            if answer.status == 416 and size != "0":
                size = ""
        if answer.status not in (200, 206, 416):
            raise status_failure(answer.status, shown(url), retry_after=answer.headers.get("Retry-After"))
        whole_size = size_in(size)
        if whole_size is None:
            raise Failure("never", f"{shown(url)}: the server does not say how large it is")
        tag = answer.headers.get("ETag", "")
        # A weak ETag identifies no bytes, and If-Match does not take it.
        changed = answer.headers.get("Last-Modified", "")
        return ObjectInfo(key, whole_size, tag if tag.startswith('"') else f"{size}:{changed}")

    def _list(self, address: str) -> str:
        def read() -> bytes:
            return self._requests.body(self._get(address, {}), self.address, LIST_BYTES)

        return with_retries(read, give_up_s=lambda: self._give_up_s(address)).decode("utf-8")

    def _give_up_s(self, url: str) -> float:
        return retry_budget_s(urlsplit(url).netloc in self._requests.answered)

    def _get(self, url: str, headers: dict[str, str]) -> Any:
        answer = self._requests.request("GET", url, shown(url), headers)
        if answer.status not in (200, 206):
            answer.close()
            raise status_failure(answer.status, shown(url), retry_after=answer.headers.get("Retry-After"))
        return answer


def shown(url: str) -> str:
    """An address without its possible secrets."""
    return re.sub(r"//[^/]*@", "//…@", url.partition("?")[0])


def _why_not(url: str) -> str | None:
    """The reason why an address cannot be requested; None if it can."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        return f"is no address: {str(error).partition(':')[0]}"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "is no http or https address"
    if parts.username is not None or parts.password is not None:
        return "holds credentials: credentials do not belong into an address"
    return None
