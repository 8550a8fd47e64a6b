"""HTTP requests by urllib3: through the environment's proxies; redirects only if allowed and safe."""

from __future__ import annotations

import functools
import os
import ssl
import urllib.request
from collections.abc import Generator, Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

from flatout.stage.sources.failures import Failure, failure_of, short
from flatout.stage.sources.store_facts import see_answer

CONNECT_S, SILENT_S = 10.0, 60.0
CONNECTIONS = 256
MOST_REDIRECTS = 5
REDIRECTS = (301, 302, 303, 307, 308)
PIECE_BYTES = 1 << 20


@functools.cache
def trusted() -> ssl.SSLContext:
    """The authorities that are trusted: the system's, or those that ``AWS_CA_BUNDLE`` names."""
    return ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE") or None)


class HttpRequests:
    """Requests from several threads at once, over kept connections."""

    def __init__(self, follow: bool) -> None:
        """Connect to nothing yet.

        Args:
            follow: follow redirects: at most five, never from https to http, nor to an address with credentials.
        """
        self._follow = follow
        self.answered: set[str] = set()  # servers that answered anything

    def request(self, method: str, url: str, where: str, headers: Mapping[str, str] | None = None) -> Any:
        """The response, whatever its status; the body of a GET is not read yet.

        Args:
            method: ``GET`` or ``HEAD``.
            url: may be signed; is in no error.
            where: names the object in errors.
            headers: to send, also to the target of a redirect.

        Raises:
            Failure: no response, or a redirect that is not followed.
        """
        sent = {"Accept-Encoding": "identity", "User-Agent": "flatout", **(headers or {})}
        for _ in range(MOST_REDIRECTS + 1):
            answer = self._once(method, url, where, sent)
            to = answer.headers.get("Location") if answer.status in REDIRECTS else None
            if not self._follow or not to:
                return answer
            answer.close()
            url = _redirected(url, to, where)
        raise Failure("never", f"{where}: more than {MOST_REDIRECTS} redirects", status=answer.status)

    def _once(self, method: str, url: str, where: str, headers: Mapping[str, str]) -> Any:
        try:
            answer = _pool(_proxy_of(url), os.getpid()).request(
                method, url, headers=dict(headers), preload_content=False, redirect=False, retries=False
            )
        except Exception as error:
            raise _transport_failure(error, where) from error
        self.answered.add(urlsplit(url).netloc)
        if method == "HEAD":
            answer.drain_conn()  # there is no body; the connection is free now
        return answer

    def body(self, answer: Any, where: str, most: int | None = None) -> bytes:
        """The body of a response, whose connection is released.

        Args:
            answer: as returned by :meth:`request`.
            where: names the object in errors.
            most: bytes; a longer body is truncated.

        Raises:
            Failure: the body ended early.
        """
        found = bytearray()
        for piece in self.pieces(answer, where):
            found += piece
            if most is not None and len(found) >= most:
                answer.close()
                break
        return bytes(found if most is None else found[:most])

    def pieces(self, answer: Any, where: str) -> Generator[bytes, None, None]:
        """The body in pieces; raises Failure as :meth:`body` does."""
        try:
            yield from answer.stream(PIECE_BYTES, decode_content=False)
            answer.release_conn()
        except Exception as error:
            answer.close()
            raise _transport_failure(error, where) from error
        except BaseException:
            answer.close()
            raise


def _transport_failure(error: Exception, where: str) -> Failure:
    """The cause inside urllib3's exceptions, whose own messages contain the address, which may be signed."""
    import urllib3.exceptions

    cause: BaseException = error
    while (inner := cause.__cause__ or cause.__context__) is not None and not isinstance(cause, OSError):
        cause = inner
    if isinstance(cause, ssl.SSLCertVerificationError):
        return Failure("never", f"{where}: its certificate is not trusted: {short(cause.verify_message)}")
    if isinstance(cause, OSError) and not isinstance(cause, urllib3.exceptions.HTTPError):
        return failure_of(cause, where)
    if isinstance(error, urllib3.exceptions.LocationValueError | UnicodeError):
        return Failure("never", f"{where}: no address that can be asked for")
    return Failure("again", f"{where}: {type(error).__name__}")


def _redirected(url: str, to: str, where: str) -> str:
    """The target of a redirect; raises Failure if it must not be followed."""
    try:
        target = urljoin(url, to).partition("#")[0]
        old, new = urlsplit(url), urlsplit(target)
        safe = new.scheme in ("http", "https") and bool(new.hostname) and new.username is None
        _ = new.port
    except ValueError:
        raise Failure("never", f"{where}: redirected to no address") from None
    if not safe:
        raise Failure("never", f"{where}: redirected to an address that is not followed")
    if old.scheme == "https" and new.scheme == "http":
        raise Failure("never", f"{where}: redirected from https to http, which is not followed")
    return target


def _proxy_of(url: str) -> str | None:
    """The proxy that the environment sets for an address; None: direct connection."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    parts = urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    return None if proxy is None or urllib.request.proxy_bypass(parts.netloc) else proxy


@functools.cache
def _pool(proxy: str | None, process: int) -> Any:
    """Kept connections; not those of a process that forked this one."""
    import urllib3

    how: dict[str, Any] = {
        "num_pools": 32, "maxsize": CONNECTIONS, "ssl_context": trusted(),
        "timeout": urllib3.Timeout(connect=CONNECT_S, read=SILENT_S),
    }  # fmt: skip
    if proxy is None:
        return urllib3.PoolManager(**how)
    address = proxy if "://" in proxy else f"http://{proxy}"
    user = urlsplit(address)
    headers = None
    if user.username is not None:
        from urllib.parse import unquote

        headers = urllib3.make_headers(proxy_basic_auth=f"{unquote(user.username)}:{unquote(user.password or '')}")
    return urllib3.ProxyManager(address, proxy_headers=headers, **how)


def range_headers(version: str, start: int, length: int | None) -> dict[str, str]:
    """Headers that ask for a range of a version; empty for all of an object."""
    if length is None:
        return {}
    found = {"Range": f"bytes={start}-{start + length - 1}"}
    if version.startswith('"'):
        found["If-Match"] = version
    return found


def wanted_pieces(
    requests: HttpRequests, answer: Any, where: str, start: int, length: int | None, version: str = ""
) -> Generator[bytes, None, None]:
    """The bytes of a range, also where the server sent all of the object.

    Raises:
        Failure: it ends early, is of another version than ``version``, or is not the range that was requested.
    """
    told = answer.headers
    try:
        see_answer(answer.status, told.get("ETag", ""), told.get("Content-Range", ""), where, start, length, version)
    except Failure:
        answer.close()
        raise
    if length is None or answer.status == 206:
        yield from requests.pieces(answer, where)
        return
    at = 0
    pieces = requests.pieces(answer, where)
    for piece in pieces:
        wanted = piece[max(start - at, 0) : max(start + length - at, 0)]
        at += len(piece)
        if wanted:
            yield wanted
        if at >= start + length:
            pieces.close()
            return
