"""Libraries in the place of ``PlainGets``: what is plain, what fails and how is the same."""

from __future__ import annotations

import contextlib
import http.client
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flatout.stage.sources.failures import failure_of, status_failure
from flatout.stage.sources.http_get import SILENT_S, TELLING, PlainGets, Server, Unusual, _split
from flatout.stage.sources.http_requests import range_headers, trusted
from flatout.stage.sources.store_facts import see_answer, size_in


class Urllib3Gets(PlainGets):
    """What reads the answers that are not plain reads all of them."""

    def stream(
        self, url: str, buffer: memoryview, otherwise: Callable[[], Iterable[Any]], *rest: object, **more: object
    ) -> Iterator[memoryview]:
        """The bytes in pieces, by urllib3."""
        return map(memoryview, otherwise())


class HttpClientGets(PlainGets):
    """Connections of ``http.client``, kept; bodies are read in place."""

    def __init__(self) -> None:
        """Nothing is connected yet."""
        super().__init__()
        self._connections: dict[Server, deque[http.client.HTTPConnection]] = defaultdict(deque)

    def _plain(
        self, url: str, buffer: memoryview, where: str, start: int, length: int | None, version: str
    ) -> Iterator[memoryview]:
        server, target = _split(url)
        connection = None
        try:
            connection, answer = self._answer(server, target, range_headers(version, start, length))
            left = _size(answer.status, answer.headers, where, start, length, version)
            while True:
                wanted, have = min(left, len(buffer)), 0
                while have < wanted:
                    got = answer.readinto(buffer[have:wanted])
                    if not got:
                        raise ConnectionResetError("the connection was cut")
                    have += got
                left -= wanted
                if not left:
                    break
                yield buffer[:wanted]
            answer.read()
            if not answer.will_close:
                self._connections[server].append(connection)
                connection = None
            yield buffer[:wanted]
        except http.client.HTTPException as error:
            raise Unusual from error
        except OSError as error:
            raise failure_of(error, where) from error
        finally:
            if connection is not None:
                connection.close()

    def _answer(
        self, server: Server, target: str, headers: dict[str, str]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        idle = self._connections[server]
        while True:
            connection = idle.pop() if idle else None
            is_new = connection is None
            if connection is None:
                connection = _connection(server)
            try:
                connection.putrequest("GET", target, skip_accept_encoding=True)
                connection.putheader("Accept-Encoding", "identity")
                connection.putheader("User-Agent", "flatout")
                for name, value in headers.items():
                    connection.putheader(name, value)
                connection.endheaders()
                return connection, connection.getresponse()
            except (OSError, http.client.HTTPException):
                connection.close()
                if is_new:
                    raise


def _connection(server: Server) -> http.client.HTTPConnection:
    if server.scheme == "https":
        return http.client.HTTPSConnection(server.netloc, timeout=SILENT_S, context=trusted())
    return http.client.HTTPConnection(server.netloc, timeout=SILENT_S)


def _size(
    status: int,
    headers: Any,
    where: str,
    start: int,
    length: int | None,
    version: str,
) -> int:
    """Length of the body; raises Failure or Unusual for an answer that does not hold what was asked for."""
    if status in TELLING:
        raise status_failure(status, where, retry_after=headers.get("Retry-After"))
    size = size_in(headers.get("Content-Length", ""))
    if status != (200 if length is None else 206) or size is None:
        raise Unusual
    see_answer(status, headers.get("ETag", ""), headers.get("Content-Range", ""), where, start, length, version)
    return size


CLIENTS: dict[str, type[PlainGets]] = {
    "flatout's own": PlainGets, "http.client": HttpClientGets, "urllib3": Urllib3Gets
}  # fmt: skip
with contextlib.suppress(ImportError):  # of pycurl
    from curl_gets import CurlGets

    CLIENTS["pycurl"] = CurlGets
