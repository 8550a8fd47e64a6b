"""Web files whose server answers at random, right or wrong: their bytes arrive, or a failure; never others.

Each case is a few requests over kept connections. What is drawn: lengths, chunks, redirects, ranges, odd headers,
refusals, mutations of all of these, pauses between pieces, and connections that end anywhere.
"""

from __future__ import annotations

import contextlib
import enum
import random
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest

from flatout.stage.sources.base import ObjectInfo
from flatout.stage.sources.failures import Failure
from flatout.stage.sources.web import WebSource

BODY = random.Random(0).randbytes(5_000)
KINDS = ("busy", "again", "mismatch", "gone", "denied", "changed", "never")
BUFFERS = (70_000, 1 << 20)
REDIRECTS_FOLLOWED = 5
ODD_HEADERS = (
    b"X-Empty:", b"X:\t  y \t", b"Server: \xff\xfe", b"Set-Cookie: a=b; Path=/", b"ETag: W/\"weak\"", b"ETag: \"tag\"",
    b"Date: yesterday", b"Keep-Alive: timeout=0, max=-1", b"X-" + 900 * b"n" + b": v", b"X: " + 9_000 * b"v",
    b"Content-Type: multipart/byteranges", b"Accept-Ranges: none", b"Retry-After: soon", b"Vary: *",
)  # fmt: skip
BROKEN_HEADERS = (
    b"no colon", b": no name", b" folded", b"\x00: \x00", b"Content-Length: 7", b"Content-Length: -1",
    b"Content-Length: 1e3", b"Content-Length: " + 400 * b"9", b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: chunked, identity", b"Content-Encoding: gzip",
    b"Content-Range: bytes 0-0/*", b"Connection: close, keep-alive", b"Content-Length : 5000", b"HTTP/1.1 200 OK",
)  # fmt: skip
BROKEN_CHUNKS = (
    b"-1\r\n", b"0x5\r\nabcde\r\n", b"\r\n", b"5\r\nabc", b"5\r\nabcdefg\r\n", b"ffffffffffffffff\r\na", b"g\r\n",
    b"5;" + 70_000 * b"e" + b"\r\nabcde\r\n", b"5\nabcde\n0\n\n", b"+5\r\nabcde\r\n", b"5", b"",
)  # fmt: skip
BROKEN_PLACES = (
    b"", b"//", b"http://", b"http://[::1", b"ftp://127.0.0.1/x", b"file:///etc/passwd", b"http://user:pw@127.0.0.1/1",
    b"https://127.0.0.1:1/1", b"http://127.0.0.1:99999/", b"\x00\xff", b"javascript:0", b"http://127.0.0.1:1/1",
)  # fmt: skip
CHUNKED = b"Transfer-Encoding: chunked"
REFUSALS = (400, 401, 403, 404, 408, 410, 412, 416, 429, 500, 502, 503, 504, 599, 204, 304, 999)

# urllib3 2.8 leaves a socket to the garbage collector where an answer has two lengths.
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")


class Due(enum.Enum):
    """What a request has to end with."""

    RIGHT = "the wanted bytes"
    BEGINNING = "the first of the wanted bytes, or a failure"
    FAILURE = "a failure"
    ANY = "bytes or a failure"


@dataclass(frozen=True)
class Answer:
    """What a server sends.

    Attributes:
        sent: the bytes.
        due: what has to come of it.
        keeps: whether the server waits for another request.
        resets: whether it ends the connection by a reset.
        pause_s: after each piece.
    """

    sent: bytes
    due: Due
    keeps: bool = False
    resets: bool = False
    pause_s: float = 0.0


def head(random_: random.Random, status: bytes, headers: list[bytes], odd: bool = True) -> bytes:
    lines = headers + (random_.choices(ODD_HEADERS, k=random_.randrange(4)) if odd else [])
    random_.shuffle(lines)
    lines = [_in_any_case(random_, line) for line in lines]
    return b"\r\n".join([b"HTTP/1.1 " + status, *lines]) + b"\r\n\r\n"


def _in_any_case(random_: random.Random, line: bytes) -> bytes:
    name, colon, value = line.partition(b":")
    return random_.choice((name, name.lower(), name.upper())) + colon + value


def chunked(random_: random.Random, data: bytes) -> bytes:
    made = b""
    while data:
        size = random_.choice((1, 10, 255, 4_096, len(data)))
        piece, data = data[:size], data[size:]
        extension = random_.choice((b"", b"", b";a=b", b' ; name="value"'))
        made += random_.choice((b"%x", b"%X", b"0%x")) % len(piece) + extension + b"\r\n" + piece + b"\r\n"
    return made + b"0\r\n" + random_.choice((b"", b"", b"X-Trailer: 1\r\n")) + b"\r\n"


def whole(random_: random.Random, wanted: tuple[int, int] | None) -> Answer:
    """The bytes, in one of the ways that HTTP knows."""
    ranged = wanted is not None and random_.random() < 0.9
    start, length = wanted if wanted is not None and ranged else (0, len(BODY))
    data = BODY[start : start + length]
    headers = [b"Content-Range: bytes %d-%d/%d" % (start, start + length - 1, len(BODY))] if ranged else []
    status = b"206 Partial Content" if ranged else b"200 OK"
    before = random_.choice((b"", b"", b"", b"HTTP/1.1 100 Continue\r\n\r\n"))
    way = random_.choice(("length", "length", "length", "chunks", "end"))
    if way == "length":
        closes = random_.random() < 0.2
        headers += [b"Content-Length:%s%d" % (random_.choice((b"", b" ", b"\t ")), len(data))]
        headers += [b"Connection: close"] if closes else []
        return Answer(before + head(random_, status, headers) + data, Due.RIGHT, keeps=not closes)
    if way == "chunks":
        sent = head(random_, status, [*headers, CHUNKED]) + chunked(random_, data)
        return Answer(before + sent, Due.RIGHT, keeps=True)
    return Answer(before + head(random_, status, headers) + data, Due.RIGHT)


def broken(random_: random.Random, wanted: tuple[int, int] | None) -> Answer:
    """An answer that is wrong somewhere."""
    start, length = wanted or (0, len(BODY))
    data = BODY[start : start + length]
    status = b"206 Partial Content" if wanted else b"200 OK"
    ranged = [b"Content-Range: bytes %d-%d/%d" % (start, start + length - 1, len(BODY))] if wanted else []
    sized = [b"Content-Length: %d" % length]
    good = whole(random_, wanted).sent
    kind = random_.randrange(11)
    if kind == 0:  # cut anywhere; http.client takes the end of the connection for the end of the head, too
        at = random_.randrange(len(good))
        said = good.partition(b"\r\n\r\n")[0]
        is_seen = b"content-length" in said.lower() and at >= len(said) + 4
        is_seen = is_seen and (wanted is None or b" 206 " in said)  # of a whole object, what was wanted may have come
        due = Due.FAILURE if is_seen else Due.BEGINNING
        return Answer(good[:at], due, resets=random_.random() < 0.5)
    if kind == 1:  # changed anywhere
        at = random_.randrange(len(good))
        return Answer(good[:at] + random_.randbytes(random_.randrange(8)) + good[at + random_.randrange(20) :], Due.ANY)
    if kind == 2:
        return Answer(head(random_, status, sized + random_.choices(BROKEN_HEADERS, k=2)) + data, Due.ANY)
    if kind == 3:
        return Answer(head(random_, status, [*ranged, CHUNKED]) + random_.choice(BROKEN_CHUNKS), Due.ANY)
    if kind == 4:  # longer than what comes
        said = random_.choice((length + 1, 1 << 40, 1 << 63, 1 << 70))
        return Answer(head(random_, status, [*ranged, b"Content-Length: %d" % said]) + data, Due.FAILURE)
    if kind == 5:  # shorter than what comes
        said = random_.choice((length - 1, 0))
        sent = head(random_, status, [*ranged, b"Content-Length: %d" % said]) + data
        return Answer(sent, Due.BEGINNING, keeps=True)
    if kind == 6:  # two lengths
        return Answer(
            head(random_, status, [*ranged, *sized, b"Content-Length: %d" % (length - 1)]) + data, Due.FAILURE
        )
    if kind == 7:  # chunks count, whatever length is said
        sent = chunked(random_, data)
        lines = [*ranged, b"Content-Length: %d" % random_.choice((9, len(sent))), CHUNKED]
        return Answer(head(random_, status, lines) + sent, Due.BEGINNING)
    if kind == 8:
        sent = head(random_, b"%d Refused" % random_.choice(REFUSALS), [b"Content-Length: 2"]) + b"no"
        return Answer(sent, Due.FAILURE, keeps=True)
    if kind == 9:  # another range, or one that nobody asked for
        first = start + random_.choice((1, 100))
        lines = [*sized, b"Content-Range: bytes %d-%d/*" % (first, first + length - 1)]
        return Answer(head(random_, b"206 Partial Content", lines) + data, Due.FAILURE)
    # Bytes that look like the answer to the next request follow.
    sent = head(random_, status, ranged + sized) + data
    return Answer(sent + b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + 5_000 * b"x", Due.BEGINNING, keeps=True)


def draw(random_: random.Random, wanted: tuple[int, int] | None, hops: int) -> list[Answer]:
    """Answers to a request and to those that redirects lead to."""
    last = whole(random_, wanted) if random_.random() < 0.5 else broken(random_, wanted)
    answers = []
    for _ in range(hops):
        status = b"%d Elsewhere" % random_.choice((301, 302, 303, 307, 308))
        place, due = b"NEXT", Due.RIGHT
        if random_.random() < 0.2:
            place, due = random_.choice(BROKEN_PLACES), Due.FAILURE
        lines = [b"Location: " + place, b"Content-Length: 3"]
        answers.append(Answer(head(random_, status, lines, odd=False) + b"moo", due, keeps=True))
        if due is Due.FAILURE:
            return answers
    return [*answers, last]


def slowed(random_: random.Random, answer: Answer) -> Answer:
    return replace(answer, pause_s=random_.choice((0.0,) * 9 + (0.001,)))


class Server:
    """Answers ``/CASE/REQUEST/HOP`` with what was drawn for it."""

    def __init__(self) -> None:
        self.answers: dict[bytes, Answer] = {}
        self.sending = 0
        self.changed = threading.Condition()
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}"
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            threading.Thread(target=self.talk, args=(connection,), daemon=True).start()

    def talk(self, connection: socket.socket) -> None:
        pieces = random.Random(0)
        with connection, contextlib.suppress(OSError):
            connection.settimeout(60)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while asked := self.request(connection):
                answer = self.answers.get(asked)
                if answer is None:
                    return
                with self.busy():
                    left = answer.sent.replace(b"NEXT", _next(asked))
                    while left:
                        size = pieces.choice((1, 7, 1_000, len(left), len(left)))
                        connection.sendall(left[:size])
                        left = left[size:]
                        time.sleep(answer.pause_s)
                if answer.resets:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                if not answer.keeps:
                    connection.shutdown(socket.SHUT_WR)
                    return

    @contextmanager
    def busy(self) -> Iterator[None]:
        with self.changed:
            self.sending += 1
        try:
            yield
        finally:
            with self.changed:
                self.sending -= 1
                self.changed.notify_all()

    def has_sent(self) -> None:
        """Wait until all answers are sent whole: what follows one on a kept connection is there, or never comes."""
        with self.changed:
            assert self.changed.wait_for(lambda: not self.sending, 60)

    @staticmethod
    def request(connection: socket.socket) -> bytes:
        """The path that a request asks for; empty: the connection was closed."""
        got = b""
        while b"\r\n\r\n" not in got:
            more = connection.recv(65_536)
            if not more:
                return b""
            got += more
        found = re.match(rb"GET (/[^ ?]*)", got)
        assert found is not None and got.count(b"\r\n\r\n") == 1
        return found[1]


def _next(path: bytes) -> bytes:
    before, _, hop = path.rpartition(b"/")
    return b"%s/%d?signature=s3cr3t" % (before, int(hop) + 1)


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    try:
        yield server
    finally:
        server.listening.shutdown(socket.SHUT_RDWR)
        server.listening.close()
        server.thread.join()


def outcome(origin: WebSource, key: str, wanted: tuple[int, int] | None, buffer: memoryview) -> bytes | Failure:
    start, length = wanted or (0, None)
    try:
        return b"".join(map(bytes, origin.stream(ObjectInfo(key, len(BODY), ""), buffer, start, length)))
    except Failure as failure:
        return failure


def check(server: Server, seed: int) -> Iterator[str]:
    """One case; gives what became of each of its requests."""
    random_ = random.Random(seed)
    origin = WebSource(f"{server.url}/{seed}/0/0?signature=s3cr3t")
    buffer = memoryview(bytearray(random_.choice(BUFFERS)))
    for number in range(random_.choice((1, 1, 2, 3))):
        wanted = random_.choice((None, None, (0, 100), (1_000, 3_000), (4_999, 1)))
        answers = [slowed(random_, a) for a in draw(random_, wanted, random_.choice((0,) * 8 + (1, 2, 5, 6)))]
        # Each request of a case asks for the same address.
        server.answers.update({b"/%d/0/%d" % (seed, hop): answer for hop, answer in enumerate(answers)})
        found = outcome(origin, "0", wanted, buffer)
        server.has_sent()
        if isinstance(found, Failure) and found.kind == "again":  # the kept connection may just have been closed
            found = outcome(origin, "0", wanted, buffer)
            server.has_sent()
        start, length = wanted or (0, len(BODY))
        right = BODY[start : start + length]
        where = (seed, number, answers[-1].sent[:300])
        due = answers[-1].due if len(answers) - 1 <= REDIRECTS_FOLLOWED else Due.FAILURE
        if isinstance(found, Failure):
            assert found.kind in KINDS and "s3cr3t" not in str(found), where
            assert due is not Due.RIGHT, (*where, found)
            yield "failed"
            continue
        assert due is not Due.FAILURE, where
        if due is Due.RIGHT:
            assert found == right, where
        elif due is Due.BEGINNING:
            assert right.startswith(found), where
        yield "bytes" if due is Due.RIGHT else "bytes of a wrong answer"


def check_all(seeds: range) -> Counter[str]:
    with serving() as server:
        return Counter(result for seed in seeds for result in check(server, seed))


@pytest.mark.slow
def test_answers_drawn_at_random_give_the_right_bytes_or_a_failure() -> None:
    found = check_all(range(250))
    assert set(found) == {"bytes", "bytes of a wrong answer", "failed"} and found["bytes"] > 100


@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_four_thousand_cases_give_the_right_bytes_or_a_failure(block: int) -> None:
    found = check_all(range(1_000 + 500 * block, 1_500 + 500 * block))
    assert found["bytes"] > 200 and found["failed"] > 100
