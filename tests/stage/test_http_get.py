"""The plain GET against servers that answer in every way, plain or not, over real sockets."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flatout.stage.sources import http_get
from flatout.stage.sources.failures import Failure
from flatout.stage.sources.http_get import PlainGets

BODY = os.urandom(300_000)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


class Cut(bytes):
    """An answer after which the server hangs up."""


Answer = Callable[[str, int], "bytes | None"]


class Server:
    """Answers with the bytes that a function gives for a request and the number of its connection; None: hang up."""

    def __init__(self, answer: Answer, tls: ssl.SSLContext | None = None) -> None:
        self.answer, self.tls, self.connections = answer, tls, 0
        self.requests: list[str] = []
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"{'https' if tls else 'http'}://localhost:{self.listening.getsockname()[1]}/one?signature=x"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.talk, args=(connection, self.connections), daemon=True).start()

    def talk(self, connection: socket.socket, number: int) -> None:
        try:
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
            with connection:
                while head := self.head(connection):
                    self.requests.append(head)
                    answer = self.answer(head, number)
                    if answer is None:
                        return
                    connection.sendall(answer)
                    if isinstance(answer, Cut):
                        return
        except OSError:
            connection.close()

    @staticmethod
    def head(connection: socket.socket) -> str:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            more = connection.recv(1)
            if not more:
                return ""
            head += more
        return head.decode()


@contextmanager
def served(answer: Answer, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server(answer, tls)
    try:
        yield server
    finally:
        server.listening.close()


class Library:
    """Stands for the library: counts how often it is asked."""

    def __init__(self, data: bytes = BODY) -> None:
        self.data, self.asked = data, 0

    def __call__(self) -> Iterator[bytes]:
        self.asked += 1
        yield self.data


def get(gets: PlainGets, server: Server, library: Library, buffer_bytes: int = 1 << 20, **range_: object) -> bytes:
    buffer = memoryview(bytearray(buffer_bytes))
    return b"".join(map(bytes, gets.stream(server.url, buffer, library, "s3://b/one", **range_)))  # type: ignore[arg-type]


@pytest.mark.parametrize("buffer_bytes", [70_000, 1 << 20])
def test_whole_objects_come_over_one_connection(buffer_bytes: int) -> None:
    gets, library = PlainGets(), Library()
    with served(lambda head, number: OK % len(BODY) + BODY) as server:
        for _ in range(5):
            assert get(gets, server, library, buffer_bytes) == BODY
    assert (server.connections, library.asked) == (1, 0)
    assert server.requests[0].startswith("GET /one?signature=x HTTP/1.1\r\nHost: localhost:")


def test_pieces_fill_the_buffer_from_its_beginning() -> None:
    buffer = memoryview(bytearray(70_000))
    with served(lambda head, number: OK % len(BODY) + BODY) as server:
        sizes = [len(piece) for piece in PlainGets().stream(server.url, buffer, Library(), "x")]
    assert sizes == [70_000] * 4 + [20_000]


def test_an_empty_object_is_no_bytes() -> None:
    gets, library = PlainGets(), Library()
    with served(lambda head, number: OK % 0) as server:
        assert get(gets, server, library) + get(gets, server, library) == b""
    assert (server.connections, library.asked) == (1, 0)


def test_a_range_is_of_the_version_that_was_listed() -> None:
    head = b"HTTP/1.1 206 Partial\r\ncontent-length: 5\r\ncontent-range: bytes 10-14/300000\r\n\r\n"
    with served(lambda request, number: head + BODY[10:15]) as server:
        assert get(PlainGets(), server, Library(), start=10, length=5, version='"tag"') == BODY[10:15]
    assert "Range: bytes=10-14\r\n" in server.requests[0] and 'If-Match: "tag"\r\n' in server.requests[0]


NOT_PLAIN = {
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "no length": b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
    "redirect": b"HTTP/1.1 307 Elsewhere\r\nLocation: http://other/\r\nContent-Length: 0\r\n\r\n",
    "refused": b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
    "negative": b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n",
    "another protocol": b"SSH-2.0-nothing of the kind\r\n\r\n",
    "endless head": b"HTTP/1.1 200 OK\r\nX: " + 70_000 * b"x" + b"\r\n\r\n",
}


@pytest.mark.parametrize("kind", NOT_PLAIN)
def test_what_is_not_plain_is_left_to_the_library_from_then_on(kind: str) -> None:
    gets, library = PlainGets(), Library()
    with served(lambda head, number: NOT_PLAIN[kind]) as server:
        for _ in range(3):
            assert get(gets, server, library) == BODY
    assert (len(server.requests), library.asked) == (1, 3)


def test_a_server_that_ignores_ranges_is_left_to_the_library() -> None:
    library = Library(BODY[:5])
    with served(lambda head, number: OK % len(BODY) + BODY) as server:
        assert get(PlainGets(), server, library, start=0, length=5) == BODY[:5]
    assert library.asked == 1


@pytest.mark.parametrize(
    ("status", "kind"),
    [(503, "busy"), (429, "busy"), (500, "again"), (408, "again"), (404, "gone"), (412, "changed")],
)
def test_refusals_say_what_to_do_and_no_library_asks_again(status: int, kind: str) -> None:
    library = Library()
    with (
        served(lambda head, number: b"HTTP/1.1 %d Sorry\r\nContent-Length: 0\r\n\r\n" % status) as server,
        pytest.raises(Failure) as refused,
    ):
        get(PlainGets(), server, library)
    assert (refused.value.kind, library.asked) == (kind, 0) and "s3://b/one" in str(refused.value)


def test_a_kept_connection_that_the_server_closed_is_replaced() -> None:
    answered: list[int] = []

    def once(head: str, number: int) -> bytes | None:
        if number in answered:
            return None
        answered.append(number)
        return OK % len(BODY) + BODY

    gets, library = PlainGets(), Library()
    with served(once) as server:
        for _ in range(3):
            assert get(gets, server, library) == BODY
    assert (server.connections, library.asked) == (3, 0)


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nConnection: Close\r\n", b"HTTP/1.0 200 OK\r\n"])
def test_a_connection_that_the_server_means_to_close_is_not_kept(head: bytes) -> None:
    gets = PlainGets()
    with served(lambda _, number: head + b"Content-Length: 2\r\n\r\nab") as server:
        assert get(gets, server, Library()) + get(gets, server, Library()) == b"abab"
    assert server.connections == 2


@pytest.mark.parametrize("sent", [0, 1_000, 290_000])
def test_a_connection_that_is_cut_is_worth_another_try(sent: int) -> None:
    gets, library = PlainGets(), Library()
    with served(lambda head, number: Cut(OK % 300_000 + BODY[:sent])) as server:
        for _ in range(2):
            with pytest.raises(Failure, match="the connection was cut") as refused:
                get(gets, server, library)
            assert refused.value.kind == "again"
    assert (server.connections, library.asked) == (2, 0)


def test_more_bytes_than_the_head_says_are_no_object() -> None:
    with (
        served(lambda head, number: OK % 100 + BODY[:104]) as server,
        pytest.raises(Failure, match="more bytes came than the head says"),
    ):
        get(PlainGets(), server, Library())


def test_bytes_after_a_body_are_not_the_next_answer() -> None:
    read, sent = threading.Event(), threading.Event()

    def serve() -> None:
        first, _ = listening.accept()
        with first:
            first.recv(4096)
            first.sendall(OK % 5 + b"first")
            read.wait(60)
            first.sendall(OK % 5 + b"wrong")
            sent.set()
            with contextlib.suppress(OSError):
                second, _ = listening.accept()
                with second:
                    second.recv(4096)
                    second.sendall(OK % 5 + b"right")

    gets, buffer = PlainGets(), memoryview(bytearray(70_000))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)
        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/one"
        try:
            assert b"".join(map(bytes, gets.stream(url, buffer, Library(), "x"))) == b"first"
            read.set()
            assert sent.wait(60)
            assert b"".join(map(bytes, gets.stream(url, buffer, Library(), "x"))) == b"right"
        finally:
            thread.join()


def test_a_server_that_falls_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_get, "SILENT_S", 1)
    with (
        served(lambda head, number: OK % 300_000 + BODY[:1000]) as server,
        pytest.raises(Failure, match="nothing came for 1 s") as refused,
    ):
        get(PlainGets(), server, Library())
    assert refused.value.kind == "again"


def test_a_server_that_sends_a_few_bytes_now_and_then_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_get, "SILENT_S", 1)
    far_ends: list[socket.socket] = []
    whole = http_get._Connection.receive

    def trickling(connection: Any, into: memoryview) -> int:
        far_ends[0].sendall(b"x")  # one byte is there for each look, however busy the machine is
        return whole(connection, into)

    monkeypatch.setattr(http_get._Connection, "receive", trickling)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def begin() -> None:
            far_ends.append(listening.accept()[0])
            far_ends[0].recv(4096)
            far_ends[0].sendall(OK % 300_000)

        thread = threading.Thread(target=begin)
        thread.start()
        url = f"http://localhost:{listening.getsockname()[1]}/one"
        buffer = memoryview(bytearray(1 << 20))
        try:
            with pytest.raises(Failure, match=r"[1-9]\d* bytes came in \d+ s") as refused:
                list(PlainGets().stream(url, buffer, Library(), "s3://b/one"))
        finally:
            thread.join()
            far_ends[0].close()
    assert refused.value.kind == "again"


def test_who_stops_in_the_middle_leaves_no_half_read_connection() -> None:
    gets = PlainGets()
    with served(lambda head, number: OK % len(BODY) + BODY) as server:
        pieces = gets.stream(server.url, memoryview(bytearray(70_000)), Library(), "x")
        next(pieces)
        pieces.close()
        assert get(gets, server, Library()) == BODY
    assert server.connections == 2


def test_a_forked_process_takes_connections_of_its_own() -> None:
    gets = PlainGets()
    with served(lambda head, number: OK % len(BODY) + BODY) as server:
        get(gets, server, Library())
        child = os.fork()
        if not child:
            os._exit(0 if get(gets, server, Library()) == BODY else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert get(gets, server, Library()) == BODY
    assert server.connections == 2


def test_what_goes_through_a_proxy_is_left_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    http_get._is_plain.cache_clear()
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    library = Library()
    with served(lambda head, number: OK % len(BODY) + BODY) as server:
        assert get(PlainGets(), server, library) == BODY
    assert (library.asked, server.connections) == (1, 0)
    http_get._is_plain.cache_clear()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key with its own certificate for localhost, made here."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate, and is not installed")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run(
        ["openssl", *words.split(), "-keyout", path.with_name("key.pem"), "-out", path], check=True, capture_output=True
    )
    path.write_bytes(path.read_bytes() + path.with_name("key.pem").read_bytes())
    return path


@pytest.mark.parametrize("trusted", [True, False])
def test_tls_is_compared_with_the_trusted_authorities(
    certificate: Path, trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    there.load_cert_chain(certificate)
    here = ssl.create_default_context(cafile=str(certificate) if trusted else None)
    monkeypatch.setattr(http_get, "trusted", lambda: here)
    gets, library = PlainGets(), Library()
    with served(lambda head, number: OK % len(BODY) + BODY, there) as server:
        assert get(gets, server, library, 70_000) + get(gets, server, library) == 2 * BODY
    assert (len(server.requests), library.asked) == ((2, 0) if trusted else (0, 2))
