"""Files of web servers: those that a list names, one address a line, or a single one."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from flatout.errors import UsageError
from flatout.stage.failures import Failure, failure_of
from flatout.stage.http_get import PlainGets
from flatout.stage.origins import LIST_SUFFIXES, Entry, Origin
from flatout.stage.store_facts import Facts, facts_of

ASKED_AT_ONCE = 32  # for sizes
CONNECTIONS = 256


class WebOrigin(Origin):
    """Addresses by HTTP(S). Sizes and versions come from HEAD requests, made while copying goes on.

    Keys are the paths below the list's own folder; those of other servers begin with the server's name. What follows a
    ``?`` is asked for, but is in no key, message or manifest: it may be a signature.
    """

    def __init__(self, source: str) -> None:
        """Read the list.

        Args:
            source: address of a list (``.txt``, ``.lst``) or of one file, or a local list.

        Raises:
            UsageError: it cannot be read, names nothing, or holds credentials.
        """
        import urllib3

        self._pool = urllib3.PoolManager(
            num_pools=32, maxsize=CONNECTIONS, retries=urllib3.Retry(False), timeout=urllib3.Timeout(10, read=60)
        )
        self._gets = PlainGets()
        self._ranges: dict[str, bool] = {}  # server -> it gives ranges
        self._urls: dict[str, str] = {}
        parts = urlsplit(source)
        is_list = parts.path.endswith(LIST_SUFFIXES)
        web = parts.scheme in ("http", "https")
        self.address = _shown(source) if web else str(Path(source).absolute())
        base = urljoin(source, ".") if web else ""
        if not is_list:
            self._add(source, base)
            return
        try:
            text = self._get(source, {})[0].decode("utf-8") if web else Path(source).read_text("utf-8")
        except (Failure, OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{self.address}: the list cannot be read: {error}") from None
        for line in text.splitlines():
            word = line.split("#")[0].strip()
            if word:
                self._add(urljoin(base, word) if web else word, base)
        if not self._urls:
            raise UsageError(f"{self.address}: no addresses in it: write one a line")

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """All files below ``prefix``, in the list's order."""
        keys = iter([key for key in self._urls if key.startswith(f"{prefix}/" if prefix else "")])
        waiting: deque[Future[Entry]] = deque()
        with ThreadPoolExecutor(ASKED_AT_ONCE, "flatout-head") as pool:
            try:
                while True:
                    while len(waiting) < 4 * ASKED_AT_ONCE and (key := next(keys, None)) is not None:
                        waiting.append(pool.submit(self._entry, key))
                    if not waiting:
                        return
                    yield waiting.popleft().result()
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def folders(self, prefix: str = "") -> list[str]:
        """Names of the folders directly below ``prefix``, sorted."""
        start = f"{prefix}/" if prefix else ""
        rests = (key.removeprefix(start) for key in self._urls if key.startswith(start))
        return sorted({rest.partition("/")[0] for rest in rests if "/" in rest})

    def stream(
        self, entry: Entry, buffer: memoryview, start: int = 0, length: int | None = None
    ) -> Generator[memoryview, None, None]:
        """The bytes of a file, or of a range of the version that was asked for before, in pieces."""
        url = self._urls[entry.key]
        read = functools.partial(self._read, entry, start, length)
        yield from self._gets.stream(url, buffer, read, _shown(url), start, length, entry.version)

    def facts(self, entry: Entry, part: int | None = None) -> Facts | None:
        """What the server says of a file; None: it cannot be asked."""
        if part is not None:
            return None
        try:
            answer = self._pool.request("HEAD", self._urls[entry.key], headers={"Accept-Encoding": "identity"})
        except Exception:  # what is asked for next says why
            return None
        return facts_of(answer.headers) if answer.status == 200 else None

    def has_ranges(self, entry: Entry) -> bool:
        """Whether the server gives a part of a file without all of it; each server is asked once."""
        url = self._urls[entry.key]
        server = urlsplit(url).netloc
        if server not in self._ranges and entry.size > 1:
            try:
                answer = self._pool.request("GET", url, headers={"Range": "bytes=0-0"}, preload_content=False)
            except Exception as error:
                raise failure_of(Exception(type(error).__name__), _shown(url)) from error
            self._ranges[server] = answer.status == 206
            answer.close()  # without the body: it may be all of the file
        return self._ranges.get(server, True)

    def _read(self, entry: Entry, start: int, length: int | None) -> Iterator[bytes]:
        headers = {}
        if length is not None:
            headers["Range"] = f"bytes={start}-{start + length - 1}"
            if entry.version.startswith('"'):
                headers["If-Match"] = entry.version
        data, answer = self._get(self._urls[entry.key], headers)
        # A server that knows no ranges sent all of it.
        yield data if length is None or answer.status == 206 else data[start : start + length]

    def _add(self, url: str, base: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{self.address}: {_shown(url)!r} is no http or https address")
        if parts.username or parts.password:
            raise UsageError(f"{parts.scheme}://…: credentials do not belong into an address")
        plain = url.partition("?")[0].partition("#")[0]
        inside = bool(base) and plain.startswith(base)
        key = unquote(plain.removeprefix(base) if inside else f"{parts.hostname}{parts.path}")
        if self._urls.setdefault(key, url) != url:
            raise UsageError(f"{self.address}: two addresses give the same name: {key}")

    def _entry(self, key: str) -> Entry:
        try:
            answer = self._pool.request("HEAD", self._urls[key], headers={"Accept-Encoding": "identity"})
        except Exception as error:
            raise failure_of(error, key) from error
        if answer.status in (403, 404, 410):
            return Entry(key, 0, "missing")  # reading it says so, and the others are not held up
        if answer.status != 200:
            raise failure_of(Exception(f"status {answer.status}"), key)
        size = answer.headers.get("Content-Length", "")
        if not size.isdigit():
            raise Failure("never", f"{key}: the server does not say how large it is")
        tag = answer.headers.get("ETag", "")
        # A weak tag names no bytes, and cannot be asked for.
        changed = answer.headers.get("Last-Modified", "")
        return Entry(key, int(size), tag if tag.startswith('"') else f"{size}:{changed}")

    def _get(self, url: str, headers: dict[str, str]) -> tuple[bytes, Any]:
        try:
            answer = self._pool.request("GET", url, headers={"Accept-Encoding": "identity", **headers})
        except Exception as error:
            raise failure_of(Exception(type(error).__name__), _shown(url)) from error
        if answer.status not in (200, 206):
            raise failure_of(Exception(f"status {answer.status}"), _shown(url))
        return answer.data, answer


def _shown(url: str) -> str:
    return url.partition("?")[0]
