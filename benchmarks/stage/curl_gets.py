"""libcurl, by pycurl, in the place of ``PlainGets``."""

from __future__ import annotations

import os
import ssl
from collections import defaultdict, deque
from collections.abc import Iterator

import pycurl

from flatout.stage.sources.failures import Failure, short, status_failure
from flatout.stage.sources.http_get import (
    _ETAG,
    _RANGE,
    _RETRY_AFTER,
    CONNECT_S,
    LEAST_BYTES_PER_S,
    SILENT_S,
    TELLING,
    PlainGets,
    Server,
    Unusual,
    _split,
    _value,
)
from flatout.stage.sources.http_requests import range_headers
from flatout.stage.sources.store_facts import see_answer

RECEIVE_BYTES = 128 << 10  # that libcurl asks the kernel for at once


class CurlGets(PlainGets):
    """Handles of libcurl, each with its connection; libcurl hands bodies over in pieces of 16 KiB, which are copied."""

    def __init__(self) -> None:
        """Nothing is connected yet."""
        super().__init__()
        self._transfers: dict[Server, deque[_Transfer]] = defaultdict(deque)

    def _plain(
        self, url: str, buffer: memoryview, where: str, start: int, length: int | None, version: str
    ) -> Iterator[memoryview]:
        server, _ = _split(url)
        idle = self._transfers[server]
        transfer = idle.pop() if idle else _Transfer(server)
        transfer.begin(url, range_headers(version, start, length), buffer)
        given = False
        try:
            while transfer.fill():
                if not given:
                    transfer.see(where, start, length, version)
                    given = True
                yield buffer
            if not given:
                transfer.see(where, start, length, version)
        except _CurlError as error:
            if error.is_connection or given:
                raise Failure("again", f"{where}: {short(str(error))}") from None
            raise Unusual from None
        finally:
            have = transfer.end()
            idle.append(transfer)
        yield buffer[:have]


class _CurlError(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text or f"libcurl's error {code}")
        self.is_connection = code in (
            pycurl.E_COULDNT_CONNECT, pycurl.E_OPERATION_TIMEDOUT, pycurl.E_PARTIAL_FILE, pycurl.E_GOT_NOTHING,
            pycurl.E_SEND_ERROR, pycurl.E_RECV_ERROR,
        )  # fmt: skip


class _Transfer:
    """One GET at a time from a server, each over the connection of the one before it."""

    def __init__(self, server: Server) -> None:
        self._multi, self._easy = pycurl.CurlMulti(), pycurl.Curl()
        self._host = f"Host: {server.netloc}"
        self._sent: dict[str, str] | None = None  # headers of the request
        self._head: list[bytes] = []
        self._buffer, self._have, self._rest, self._is_paused = memoryview(b""), 0, b"", False
        for option, value in (
            (pycurl.NOSIGNAL, 1),
            (pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS),
            (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),
            (pycurl.PATH_AS_IS, 1),  # a key may hold "..", and is signed
            (pycurl.CONNECTTIMEOUT, int(CONNECT_S)),
            (pycurl.LOW_SPEED_TIME, SILENT_S),
            (pycurl.LOW_SPEED_LIMIT, LEAST_BYTES_PER_S),
            (pycurl.BUFFERSIZE, RECEIVE_BYTES),
            (pycurl.USERAGENT, "flatout"),
            (pycurl.PROXY, ""),
            (pycurl.CAINFO, os.environ.get("AWS_CA_BUNDLE") or ssl.get_default_verify_paths().cafile),
            (pycurl.HEADERFUNCTION, self._head.append),
            (pycurl.WRITEFUNCTION, self._write),
        ):
            self._easy.setopt(option, value)

    def begin(self, url: str, headers: dict[str, str], buffer: memoryview) -> None:
        """Send a request; its answer comes with :meth:`fill`."""
        self._buffer, self._have, self._rest, self._is_paused = buffer, 0, b"", False
        self._head.clear()
        self._easy.setopt(pycurl.URL, url)
        if headers != self._sent:
            lines = [f"{name}: {value}" for name, value in headers.items()]
            self._easy.setopt(pycurl.HTTPHEADER, [self._host, "Accept-Encoding: identity", "Accept:", *lines])
            self._sent = headers
        self._multi.add_handle(self._easy)

    def fill(self) -> bool:
        """Fill the buffer from its beginning; False: the body ended in it.

        Raises:
            _CurlError: it broke off.
        """
        rest, self._have, self._rest = self._rest, 0, b""
        if rest:
            self._write(rest)
        if self._is_paused and not self._rest:
            self._is_paused = False
            self._easy.pause(pycurl.PAUSE_CONT)
        while not self._rest:
            _, running = self._multi.perform()
            if not running and not self._rest:
                _, _, failed = self._multi.info_read()
                for _, code, text in failed:
                    raise _CurlError(code, text)
                return False
            if not self._rest:
                self._multi.select(1.0)
        return True

    def end(self) -> int:
        """Give up what has not come; gives how many bytes are in the buffer."""
        self._multi.remove_handle(self._easy)
        self._buffer = memoryview(b"")
        return self._have

    def see(self, where: str, start: int, length: int | None, version: str) -> None:
        """Raise Failure or Unusual for an answer that does not hold what was asked for."""
        status = self._easy.getinfo(pycurl.RESPONSE_CODE)
        sent = b"".join(self._head)
        head = sent.lower()
        if status in TELLING:
            wait = _RETRY_AFTER.search(head)
            raise status_failure(status, where, retry_after=wait[1].decode() if wait else None)
        if status != (200 if length is None else 206):
            raise Unusual
        see_answer(status, _value(_ETAG, head, sent), _value(_RANGE, head, sent), where, start, length, version)

    def _write(self, data: bytes) -> int | None:
        if self._rest:
            self._is_paused = True
            return int(pycurl.WRITEFUNC_PAUSE)
        have = self._have
        self._have = end = have + len(data)
        try:
            self._buffer[have:end] = data
        except ValueError:  # it does not fit
            room = len(self._buffer) - have
            self._buffer[have:], self._rest, self._have = data[:room], data[room:], len(self._buffer)
        return None
