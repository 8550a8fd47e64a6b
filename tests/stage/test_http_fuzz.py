"""The plain GET against answers drawn at random: the right bytes come, or a failure; never others."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from flatout.stage.sources import http_get
from flatout.stage.sources.failures import Failure
from flatout.stage.sources.http_get import PlainGets
from flatout.stage.sources.http_requests import HttpRequests, wanted_pieces

BODY = random.Random(0).randbytes(3_000)
KINDS = ("busy", "again", "mismatch", "gone", "denied", "changed", "never")
STATUSES = (b"200 OK", b"206 Partial", b"200", b"204 None", b"301 Moved", b"302 Found", b"304 Same", b"404 No",
            b"503 Busy", b"412 Changed", b"999 Odd", b"100 Continue", b"-1 x", b"2000 OK", b"abc", b"")  # fmt: skip
PROTOCOLS = (b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2", b"http/1.1", b"ICY", b"")
HEADERS = (
    b"Content-Length: %d", b"content-length:%d", b"Content-Length:   %d  ", b"Content-Length: %d\r\nContent-Length: %d",
    b"Content-Length: %d\r\nContent-Length: 7", b"Content-Length: -%d", b"Content-Length: +%d", b"Content-Length: 0x%x",
    b"Content-Length: %d, %d", b"X-Content-Length: %d", b"Content-Length: 99999999999999999999%d", b"",
    b"Content-Length: %d\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: chunked", b"Content-Length : %d",
    b"Content-Length: %d\r\nConnection: close", b"Content-Length: %d\r\nConnection: keep-alive, Close",
    b"Content-Length: %d\r\nContent-Encoding: gzip", b"Content-Length: %d\r\nRetry-After: 5",
    b"Content-Length: %d\r\nRetry-After: \xff\xfe", b"Content-Length: %d\r\nLocation: http://[::1/",
    b"Content-Length: %d\r\nX: \x00\x01\x1b[31m", b"Content-Length: %d\r\n folded: yes", b"no colon at all",
)  # fmt: skip
ENDS = (b"\r\n\r\n", b"\r\n\r\n", b"\r\n\r\n", b"\n\n", b"\r\n", b"")


def draw(random_: random.Random) -> tuple[bytes, bool]:
    """An answer, and whether it is the plain one, whose bytes have to arrive."""
    if random_.random() < 0.3:
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY, True
    head = random_.choice(HEADERS)
    count = head.count(b"%d") + head.count(b"%x")
    body = random_.choice((BODY, BODY[:-1], BODY + b"x", b"", BODY[:100], b"5\r\nabcde\r\n0\r\n\r\n"))
    length = random_.choice((len(BODY), len(body), 0, 1 << 40))
    start = random_.choice(PROTOCOLS) + b" " + random_.choice(STATUSES)
    answer = start + b"\r\n" + head % ((length,) * count) + random_.choice(ENDS) + body
    if random_.random() < 0.2:
        at = random_.randrange(len(answer) + 1)
        answer = answer[:at] + random_.randbytes(random_.randrange(20)) + answer[at + random_.randrange(20) :]
    if random_.random() < 0.1:
        answer = b"HTTP/1.1 100 Continue\r\n\r\n" + answer
    return answer, False


@contextmanager
def hostile(answers: Iterator[bytes], seed: int) -> Iterator[str]:
    """A server that sends one answer a connection, in pieces of any size, and hangs up."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=64)
    pieces = random.Random(seed)

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(60)
                connection.recv(65536)
                answer = next(answers, b"")
                while answer:
                    size = pieces.choice((1, 7, 1000, len(answer)))
                    connection.sendall(answer[:size])
                    answer = answer[size:]
                connection.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/one?signature=s3cr3t"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def outcome(url: str, buffer: memoryview, start: int, length: int | None) -> bytes | Failure | None:
    """What comes: bytes, a failure, or None where the library is to be asked."""

    class Asked(Exception):
        pass

    def library() -> Iterator[bytes]:
        raise Asked
        yield b""

    try:
        return b"".join(map(bytes, PlainGets().stream(url, buffer, library, "s3://b/k", start, length)))
    except Asked:
        return None
    except Failure as failure:
        return failure


def check(seed: int) -> str:
    """One case: an answer is the right bytes as its own head says, a failure of a known kind, or for the library."""
    random_ = random.Random(seed)
    answer, is_plain = draw(random_)
    length = random_.choice((None, None, 100))
    buffer = memoryview(bytearray(random_.choice((70_000, 1 << 20))))
    with hostile(iter([answer]), seed) as url:
        found = outcome(url, buffer, 0, length)
    if isinstance(found, Failure):
        assert found.kind in KINDS and "s3cr3t" not in str(found), (seed, found)
        assert not (is_plain and length is None), (seed, found)
        return "failed"
    if found is None:
        assert not (is_plain and length is None), seed
        return "library"
    head, _, body = answer.partition(b"\r\n\r\n")
    assert body.startswith(found) and b"%d" % len(found) in head, (seed, answer[:200])
    return "bytes"


def check_library(seed: int) -> str:
    """The same of the client that is asked where an answer is not plain."""
    answer, is_plain = draw(random.Random(seed))
    requests = HttpRequests(follow=True)
    with hostile(iter([answer]), seed) as url:
        try:
            found = requests.request("GET", url, "s3://b/k")
            data = b"".join(wanted_pieces(requests, found, "s3://b/k", 0, None))
        except Failure as failure:
            assert failure.kind in KINDS and "s3cr3t" not in str(failure) and not is_plain, (seed, failure)
            return "failed"
    assert not is_plain or data == BODY, seed
    return "bytes"


def test_answers_drawn_at_random_give_the_right_bytes_or_a_failure() -> None:
    assert {check(seed) for seed in range(150)} == {"failed", "library", "bytes"}


def test_answers_drawn_at_random_give_the_library_bytes_or_a_failure() -> None:
    assert {check_library(seed) for seed in range(150)} == {"failed", "bytes"}


@pytest.mark.slow
def test_many_answers_drawn_at_random_give_the_right_bytes_or_a_failure() -> None:
    for seed in range(1_000, 4_000):
        check(seed)
        check_library(seed)


def test_a_server_that_sends_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_get, "SILENT_S", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/one"
        found = outcome(url, memoryview(bytearray(70_000)), 0, None)
    assert isinstance(found, Failure) and found.kind == "again"


def test_an_answer_to_another_request_never_becomes_part_of_this_one() -> None:
    """Bytes behind a body are not taken for the next answer of the kept connection."""
    plain = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
    for more in (b"x", plain + b"wrong", b"HTTP/1.1 200 OK\r\n"):
        with hostile(iter([plain + b"right" + more]), 1) as url:
            found = outcome(url, memoryview(bytearray(70_000)), 0, None)
            assert isinstance(found, Failure) or found == b"right"
