"""A page on this machine that shows a run while it goes on: one address with a token, and server-sent events.

Each viewer has a thread, which sends the newest snapshot only: one that reads slowly skips the others, and holds up
nobody.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

HOST = "127.0.0.1"
MOST_VIEWERS = 32
SEND_WITHIN_S = 10.0  # a viewer that takes no byte for so long is gone
ALIVE_EVERY_S = 15.0  # a comment keeps proxies and tunnels open
# Names of this machine only: a page of another site whose name leads here is refused.
_NAMES = {"127.0.0.1", "localhost", "[::1]"}


class _News:
    """The newest snapshot, and a condition that is notified of it."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.number, self.content, self.over = 0, b"", False
        self.viewers = 0

    def wait(self, seen: int) -> tuple[int, bytes, bool]:
        """The number, the content, and whether it is the last one; the one seen before after ``ALIVE_EVERY_S``."""
        with self.changed:
            self.changed.wait_for(lambda: self.number != seen or self.over, ALIVE_EVERY_S)
            return self.number, self.content, self.over


class LiveServer:
    """Serves the page of one run on a free port of this machine."""

    def __init__(self, page: str) -> None:
        """Listen.

        Args:
            page: HTML, whose script opens ``events`` beside it.

        Raises:
            OSError: no port of this machine can be opened.
        """
        self._news = _News()
        token = secrets.token_urlsafe(18)
        handler = type("Handler", (_Handler,), {"page": page.encode(), "token": token, "news": self._news})
        self._server = _Server((HOST, 0), handler)
        self.port: int = self._server.server_address[1]
        self.url = f"http://{HOST}:{self.port}/?token={token}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.2,), name="live-page", daemon=True)
        self._thread.start()

    @property
    def viewers(self) -> int:
        """Pages that are open now."""
        return self._news.viewers

    def publish(self, content: bytes, *, over: bool = False) -> None:
        """Show this to all viewers; ``over``: nothing comes after it.

        Args:
            content: of one line.
            over: the run has ended.
        """
        with self._news.changed:
            self._news.number += 1
            self._news.content, self._news.over = content, over
            self._news.changed.notify_all()

    def close(self, within_s: float = 2.0) -> None:
        """Stop serving, once all viewers have the last snapshot or the time is up."""
        with self._news.changed:
            self._news.over = True
            self._news.changed.notify_all()
            self._news.changed.wait_for(lambda: not self._news.viewers, within_s)
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # of a viewer that does not read

    def handle_error(self, request: object, client_address: object) -> None:
        """A viewer that is gone is no fault."""


class _Handler(BaseHTTPRequestHandler):
    page: ClassVar[bytes]
    token: ClassVar[str]
    news: ClassVar[_News]
    timeout = SEND_WITHIN_S

    server_version, sys_version = "flatout", ""  # answers name no version of Python

    def do_HEAD(self) -> None:
        """The head of what GET answers."""
        self.do_GET()

    def do_GET(self) -> None:
        """The page, or its events."""
        path = urlsplit(self.path)
        name = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        given = parse_qs(path.query).get("token", [""])[0]
        if name not in _NAMES:
            self._refuse(403, "this page is for this machine: open http://127.0.0.1, through ssh -L if need be")
        elif not hmac.compare_digest(given.encode(), self.token.encode()):
            self._refuse(403, "the address lacks the token: copy all of what flatout printed")
        elif path.path == "/":
            self._send("text/html; charset=utf-8", self.page)
        elif path.path == "/events" and self.command == "HEAD":
            self._head(200, "text/event-stream")
        elif path.path == "/events":
            self._events()
        else:
            self._refuse(404, "there is only one page: /")

    def _events(self) -> None:
        with self.news.changed:
            if self.news.viewers >= MOST_VIEWERS:
                self._refuse(503, f"{MOST_VIEWERS} pages of this run are open: close one")
                return
            self.news.viewers += 1
        try:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 256 << 10)
            self._head(200, "text/event-stream")
            seen, over = -1, False
            while not over:
                number, content, over = self.news.wait(seen)
                frame = b"data: " + content + b"\n\n" if content and number != seen else b": alive\n\n"
                self.wfile.write(frame + (b"event: over\ndata: 1\n\n" if over else b""))
                seen = number
        except OSError:
            pass  # closed, or too slow
        finally:
            with self.news.changed:
                self.news.viewers -= 1
                self.news.changed.notify_all()
            self.close_connection = True

    def _send(self, kind: str, content: bytes, code: int = 200) -> None:
        self._head(code, kind, len(content))
        if self.command == "GET":
            self.wfile.write(content)

    def _refuse(self, code: int, why: str) -> None:
        self._send("text/plain; charset=utf-8", f"{why}\n".encode(), code)

    def _head(self, code: int, kind: str, length: int | None = None) -> None:
        self.send_response(code)
        headers = {
            "Content-Type": kind,
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed between the lines of the training."""
