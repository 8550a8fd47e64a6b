"""GET over kept connections, by blocking sockets: the plain case alone, with the least work for each object.

In whole stagings of small objects pycurl reaches 0.92 of its files/s at 0 ms and 0.86 at 20 ms, http.client 0.87 and
0.86, urllib3 0.61 and 0.67 (docs/measurements/stage.md): no library stays within 0.9 at both, so this client does.
It handles only HTTP responses with a length. For a redirect, a chunked body, a proxy or a refusal, it calls the
library, which either succeeds or reports the error.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import socket
import ssl
import struct
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from flatout.stage.sources.failures import failure_of, status_failure
from flatout.stage.sources.http_requests import trusted
from flatout.stage.sources.store_facts import see_answer

CONNECT_S = 10.0
SILENT_S = 60  # a server that sends nothing for this long is given up
LEAST_BYTES_PER_S = 4096  # of a body, once SILENT_S have passed: a connection that stalls is worth another one
HEAD_BYTES = 64 << 10
TELLING = (404, 408, 410, 412, 429, *range(500, 600))  # statuses that need no library to interpret
_PLAIN = re.compile(r"[!-~]+")  # characters allowed in a request line
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*(?=\r|$)")
_ETAG = re.compile(rb"\r\netag:[ \t]*([^\r\n]*)")
_RANGE = re.compile(rb"\r\ncontent-range:[ \t]*([^\r\n]*)")
_RETRY_AFTER = re.compile(rb"\r\nretry-after:[ \t]*([0-9]{1,6})[ \t]*(?=\r|$)")
_CLOSE = re.compile(rb"\r\nconnection:[^\r]*close")


class Server(NamedTuple):
    """The address to connect to."""

    scheme: str
    netloc: str


class Unusual(Exception):
    """Not the plain case: a library must make the request. No bytes were yielded yet."""


class PlainGets:
    """GETs from several threads at once; each takes a kept connection, or makes one."""

    def __init__(self) -> None:
        """Connect to nothing yet."""
        self._idle: dict[Server, deque[_Connection]] = defaultdict(deque)
        self._process = os.getpid()
        self._unusual: set[str] = set()  # servers that only the library can talk to

    def stream(
        self,
        url: str,
        buffer: memoryview,
        otherwise: Callable[[], Iterable[Any]],
        where: str,
        start: int = 0,
        length: int | None = None,
        version: str = "",
    ) -> Iterator[memoryview]:
        """The bytes of an address in pieces, each valid until the next is requested.

        Pieces start at the buffer's start and all but the last fill it; those of the library use memory of its own.

        Args:
            url: ``http`` or ``https``; may be signed.
            buffer: the pieces lie in it.
            otherwise: yields the bytes in pieces of any length, through a library, if the response is not a plain one.
                Where it succeeds, only the library asks this server from then on.
            where: names the object in errors.
            start: of the range.
            length: of the range; None: the whole object.
            version: ETag that the bytes must have.

        Raises:
            Failure: it could not be read.
        """
        server = url.partition("://")[2].partition("/")[0]
        if server not in self._unusual:
            with contextlib.suppress(Unusual):
                yield from self._plain(url, buffer, where, start, length, version)
                return
        for piece in otherwise():
            self._unusual.add(server)
            yield memoryview(piece)

    def _plain(
        self, url: str, buffer: memoryview, where: str, start: int, length: int | None, version: str
    ) -> Iterator[memoryview]:
        server, target = _split(url)
        request = _request(server, target, start, length, version)
        connection = None
        try:
            connection, left, have = self._ask(server, request, buffer, where, (start, length, version))
            if have > left:
                raise ConnectionError("more bytes came than the head says")
            began, came = time.monotonic(), 0
            while True:
                wanted = min(left, len(buffer))
                while have < wanted:
                    have += connection.receive(buffer[have:wanted])
                    if have < wanted:
                        _see_rate(came + have, began)
                left -= wanted
                came += wanted
                if not left:
                    break
                yield buffer[:wanted]
                have = 0
            if connection.kept:  # another thread may use it while this one writes
                self._idle[server].append(connection)
                connection = None
            yield buffer[:wanted]
        except OSError as error:
            raise failure_of(error, where) from error
        finally:
            if connection is not None:
                connection.socket.close()

    def _ask(
        self, server: Server, request: bytes, buffer: memoryview, where: str, asked: tuple[int, int | None, str]
    ) -> tuple[_Connection, int, int]:
        """Connection, size of the body, and how much of it is in the buffer already."""
        idle = self._kept(server)
        while True:
            connection = idle.pop() if idle else None
            if connection is not None and not connection.is_quiet():
                connection.socket.close()
                continue
            is_new = connection is None
            if connection is None:
                connection = _Connection(server)
            try:
                connection.socket.sendall(request)
                head, have = connection.head(buffer)
            except OSError:
                connection.socket.close()
                if is_new:
                    raise
                continue  # the server closed it while it was idle
            try:
                return connection, _size(connection, head, where, *asked), have
            except BaseException:
                connection.socket.close()
                raise

    def _kept(self, server: Server) -> deque[_Connection]:
        if self._process != os.getpid():  # after a fork: they belong to the parent
            self._idle, self._process = defaultdict(deque), os.getpid()
        return self._idle[server]


def _see_rate(came: int, began: float) -> None:
    """Raises TimeoutError if a server sends so little that its connection must be taken for dead."""
    took = time.monotonic() - began
    if took >= SILENT_S and came < LEAST_BYTES_PER_S * took:
        raise TimeoutError(f"{came} bytes came in {took:.0f} s")


class _Connection:
    def __init__(self, server: Server) -> None:
        parts = urlsplit(f"{server.scheme}://{server.netloc}")
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        self.socket = socket.create_connection((host, port), CONNECT_S)
        self.kept = True
        try:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if parts.scheme == "https":
                self.socket = trusted().wrap_socket(self.socket, server_hostname=host)
                self.socket.settimeout(SILENT_S)
            else:
                # The kernel's timeouts: with Python's, each piece takes two system calls.
                self.socket.settimeout(None)
                for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                    self.socket.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", SILENT_S, 0))
        except ssl.SSLError as error:  # the library may trust other authorities
            self.socket.close()
            raise Unusual from error
        except BaseException:
            self.socket.close()
            raise
        self._flags = socket.MSG_WAITALL if parts.scheme == "http" else 0

    def __del__(self) -> None:
        if hasattr(self, "socket"):
            self.socket.close()

    def is_quiet(self) -> bool:
        """True if it is open with nothing after the last body, which would be read as the next response."""
        try:
            if isinstance(self.socket, ssl.SSLSocket):
                return not self.socket.pending()  # the socket below may hold messages of TLS itself
            self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def head(self, buffer: memoryview) -> tuple[bytes, int]:
        """The head of a response; received bytes of the body are then at the buffer's start."""
        have, began = 0, time.monotonic()
        while True:
            have += self._receive(buffer[have:], 0)
            head = bytes(buffer[: min(have, HEAD_BYTES)])
            end = head.find(b"\r\n\r\n")
            if end >= 0:
                buffer[: have - end - 4] = buffer[end + 4 : have]
                return head[:end], have - end - 4
            if have >= HEAD_BYTES:
                raise Unusual
            _see_rate(have, began)

    def receive(self, into: memoryview) -> int:
        """At least one byte; all requested bytes if the kernel can wait for them."""
        return self._receive(into, self._flags)

    def _receive(self, into: memoryview, flags: int) -> int:
        try:
            got = self.socket.recv_into(into, 0, flags)
        except BlockingIOError:
            raise TimeoutError(f"nothing came for {SILENT_S} s") from None
        if not got:
            raise ConnectionResetError("the connection was cut")
        return got


@functools.cache
def _is_plain(server: Server) -> bool:
    """True if requests go to the server without a proxy, and its name is valid in a request."""
    if server.scheme not in ("http", "https") or not _PLAIN.fullmatch(server.netloc) or "@" in server.netloc:
        return False
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return True
    import urllib.request

    return server.scheme not in urllib.request.getproxies() or bool(urllib.request.proxy_bypass(server.netloc))


def _split(url: str) -> tuple[Server, str]:
    """Server and target of a request."""
    scheme, _, rest = url.partition("://")
    netloc, _, target = rest.partition("/")
    server = Server(scheme, netloc)
    if not _is_plain(server) or "?" in netloc or "#" in target:
        raise Unusual
    return server, f"/{target}"


def _request(server: Server, target: str, start: int, length: int | None, version: str) -> bytes:
    if not _PLAIN.fullmatch(target):
        raise Unusual
    lines = [f"GET {target} HTTP/1.1", f"Host: {server.netloc}", "Accept-Encoding: identity", "User-Agent: flatout"]
    if length is not None:
        lines.append(f"Range: bytes={start}-{start + length - 1}")
        if version.startswith('"') and _PLAIN.fullmatch(version):
            lines.append(f"If-Match: {version}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _size(connection: _Connection, head: bytes, where: str, start: int, length: int | None, version: str) -> int:
    """Length of the body of a plain response; records whether the connection stays open after it."""
    sent, head = head, head.lower()
    if not head.startswith((b"http/1.1 ", b"http/1.0 ")) or not head[9:12].isdigit():
        raise Unusual
    status = int(head[9:12])
    if status in TELLING:
        wait = _RETRY_AFTER.search(head)
        raise status_failure(status, where, retry_after=wait[1].decode() if wait else None)
    sizes = _LENGTH.findall(head)
    if status != (200 if length is None else 206) or len(sizes) != 1 or b"\r\ntransfer-encoding:" in head:
        raise Unusual
    see_answer(status, _value(_ETAG, head, sent), _value(_RANGE, head, sent), where, start, length, version)
    connection.kept = head.startswith(b"http/1.1") and _CLOSE.search(head) is None
    return int(sizes[0])


def _value(name: re.Pattern[bytes], head: bytes, sent: bytes) -> str:
    """A header as it was sent, located by the head in lower case; empty if there is none."""
    found = name.search(head)
    return sent[found.start(1) : found.end(1)].decode("latin-1") if found else ""
