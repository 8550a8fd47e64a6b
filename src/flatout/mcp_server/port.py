"""The server on a port of this machine: for those who send its token, and for no longer than a signal allows."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from uvicorn.protocols.http.h11_impl import H11Protocol

from flatout.errors import UsageError
from flatout.mcp_server.jobs import Jobs
from flatout.mcp_server.server import build

HOST = "127.0.0.1"
HEADERS_WITHIN_S = 10.0
_REQUESTS_END_WITHIN_S = 2  # after a signal; a request whose body never comes would hold the server for ever

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Callable[..., Awaitable[Any]], Callable[..., Awaitable[Any]]], Awaitable[None]]


def serve_http(root: Path, port: int) -> None:
    """Serve on a port of this machine, to clients that send the token, until Ctrl-C; then end all jobs.

    Args:
        root: commands run in this folder, or below.
        port: 0: a free one.

    Raises:
        UsageError: the port is taken.
    """
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen()  # before the address is printed: who reads it may connect
    except OSError as error:
        listening.close()
        raise UsageError(f"--port {port}: {error.strerror}; leave it out for a free one") from None
    number = listening.getsockname()[1]
    token = secrets.token_urlsafe(24)
    jobs = Jobs()
    names = [f"{HOST}:{number}", f"localhost:{number}"]
    security = TransportSecuritySettings(allowed_hosts=names, allowed_origins=[f"http://{name}" for name in names])
    app = build(root, jobs).streamable_http_app(transport_security=security, host=HOST)
    print(f"http://{HOST}:{number}/mcp\nAuthorization: Bearer {token}", file=sys.stderr, flush=True)
    settings = uvicorn.Config(
        with_token(app, token),
        http=PromptProtocol,
        ws="none",
        log_level="critical",
        timeout_graceful_shutdown=_REQUESTS_END_WITHIN_S,
    )
    try:
        uvicorn.Server(settings).run(sockets=[listening])
    finally:
        jobs.close()


class PromptProtocol(H11Protocol):
    """A connection that is closed where the headers of a request do not arrive in time."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The first request has to come."""
        super().connection_made(transport)
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        """Whole headers have begun an exchange; the rest of some have not."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
        elif self._late is None:
            self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is to come."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _await_headers(self) -> None:
        self._late = asyncio.get_running_loop().call_later(HEADERS_WITHIN_S, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def with_token(app: App, token: str) -> App:
    """The application for those who send the token; 401 for others."""
    wanted = f"Bearer {token}".encode()

    async def guarded(
        scope: Scope, receive: Callable[..., Awaitable[Any]], send: Callable[..., Awaitable[Any]]
    ) -> None:
        if scope["type"] == "http":
            sent = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(sent, wanted):
                await send(
                    {"type": "http.response.start", "status": 401, "headers": [(b"www-authenticate", b"Bearer")]}
                )
                await send(
                    {"type": "http.response.body", "body": b"the header Authorization: Bearer TOKEN is needed\n"}
                )
                return
        await app(scope, receive, send)

    return guarded
