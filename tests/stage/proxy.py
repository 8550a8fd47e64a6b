"""A proxy before a server that is slow, says "slow down", or cuts connections: by a draw that each request decides."""

from __future__ import annotations

import http.client
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class Faults:
    """What the proxy does to GET requests; counts what it has seen.

    Attributes:
        held_after: so many GETs of objects are passed on; the rest waits until ``go_on`` is set. None: nothing waits.
    """

    def __init__(
        self,
        *,
        delay_s: float = 0.0,
        slow_down: float = 0.0,
        cut: float = 0.0,
        flip: float = 0.0,
        held_after: int | None = None,
    ) -> None:
        self.held_after, self.go_on = held_after, threading.Event()
        self.delay_s, self.slow_down, self.cut, self.flip = delay_s, slow_down, cut, flip
        self.tries: dict[str, int] = {}  # path of an object -> GETs
        self.lock = threading.Lock()
        self.gets: dict[str, int] = {}  # path of an object -> answered, whole or a range
        self.faults = 0


@contextmanager
def proxy(endpoint: str, faults: Faults) -> Iterator[str]:
    """Stand before ``endpoint``; gives the proxy's own endpoint."""
    behind = urlsplit(endpoint).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            data = self.command == "GET" and "list-type" not in self.path
            # Without the query: it holds a signature, which is another one each time.
            key = self.path.partition("?")[0]
            with faults.lock:
                faults.tries[key] = faults.tries.get(key, 0) + data
                # The same for the same try of an object, in whatever order they come.
                chance = random.Random(f"{key} {faults.tries[key]}").random()
                is_held = faults.held_after is not None and sum(faults.tries.values()) > faults.held_after
            if data and is_held:
                faults.go_on.wait(60)
            time.sleep(faults.delay_s)
            if data and chance < faults.slow_down:
                faults.faults += 1
                self.answer(503, {}, SLOW_DOWN)
                return
            link = http.client.HTTPConnection(behind)
            with suppress(ConnectionError):
                # Signatures hold: the Host header stays what the client signed.
                link.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    link.putheader(name, value)
                link.endheaders(body)
                reply = link.getresponse()
                content = reply.read()
                link.close()
                chance -= faults.slow_down
                if data and 0 <= chance < faults.cut:
                    faults.faults += 1
                    self.answer(reply.status, dict(reply.headers), content, send=len(content) // 2)
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                chance -= faults.cut
                if data and 0 <= chance < faults.flip and content:
                    faults.faults += 1
                    content = content[:-1] + bytes([content[-1] ^ 1])
                self.answer(reply.status, dict(reply.headers), content)
                if data and reply.status in (200, 206):
                    with faults.lock:
                        faults.gets[key] = faults.gets.get(key, 0) + 1

        def answer(self, status: int, headers: dict[str, str], content: bytes, send: int | None = None) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                    self.send_header(name, value)
            length = headers.get("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(content)))
            self.end_headers()
            with suppress(ConnectionError):
                self.wfile.write(content if send is None else content[:send])

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # a client that went away

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
