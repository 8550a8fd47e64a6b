"""Web lists against servers that redirect, refuse HEAD, sign GET alone, are busy, or are not there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from flatout import cli
from flatout.stage.selection import Selection
from flatout.stage.sources import retries
from flatout.stage.sources.base import Source
from flatout.stage.sources.failures import Failure
from flatout.stage.sources.http_requests import HttpRequests, _redirected
from flatout.stage.sources.open import open_source
from flatout.stage.staging import stage
from tests.stage.clock import Clock

BODY = bytes(range(256)) * 40
Reply = tuple[int, dict[str, str], bytes]
Answer = Callable[[BaseHTTPRequestHandler], Reply]


@contextmanager
def served(answer: Answer) -> Iterator[str]:
    """A server; status 0 breaks the connection."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            status, headers, body = answer(self)
            if not status:
                self.close_connection = True
                return
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if "Content-Length" not in headers and "Transfer-Encoding" not in headers:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET

    class Server(ThreadingHTTPServer):
        daemon_threads = True

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


def plain(request: BaseHTTPRequestHandler) -> Reply:
    """What an ordinary server with ranges gives."""
    asked = request.headers.get("Range")
    if not asked:
        return 200, {"ETag": '"v1"'}, BODY
    start, end = asked.removeprefix("bytes=").split("-")
    part = BODY[int(start) : int(end) + 1]
    return 206, {"ETag": '"v1"', "Content-Range": f"bytes {start}-{end}/{len(BODY)}"}, part


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "time", Clock())


def listed(tmp_path: Path, *addresses: str) -> Source:
    (tmp_path / "list.txt").write_text("\n".join(addresses))
    return open_source(str(tmp_path / "list.txt"))


def staged(tmp_path: Path, *addresses: str) -> tuple[int, int]:
    done = stage(listed(tmp_path, *addresses), tmp_path / "dest", Selection())
    files = [path for path in (tmp_path / "dest").rglob("*") if path.is_file()]
    assert all(path.read_bytes() == BODY for path in files) and len(files) == done.copied
    return done.copied, done.n_failed


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 501])
@pytest.mark.parametrize("ranges", [True, False])
def test_a_server_that_refuses_head_is_asked_for_the_first_byte(tmp_path: Path, status: int, ranges: bool) -> None:
    def answer(request: BaseHTTPRequestHandler) -> Reply:
        if request.command == "HEAD":
            return status, {}, b""
        return plain(request) if ranges else (200, {}, BODY)

    with served(answer) as url:
        assert staged(tmp_path, f"{url}/a?X-Amz-Signature=get-only", f"{url}/b") == (2, 0)


def test_an_empty_file_of_a_server_that_refuses_head_is_empty(tmp_path: Path) -> None:
    def answer(request: BaseHTTPRequestHandler) -> Reply:
        if request.command == "HEAD":
            return 403, {}, b""
        return (416, {"Content-Range": "bytes */0"}, b"") if "Range" in request.headers else (200, {}, b"")

    with served(answer) as url:
        done = stage(listed(tmp_path, f"{url}/a"), tmp_path / "dest", Selection())
    assert (done.copied, done.n_failed, done.copied_bytes) == (1, 0, 0)


@pytest.mark.parametrize("kind", [503, 500, 429, 0])
def test_a_head_that_fails_for_a_while_is_asked_again(tmp_path: Path, kind: int) -> None:
    left = [4]

    def answer(request: BaseHTTPRequestHandler) -> Reply:
        if request.command == "HEAD" and left[0]:
            left[0] -= 1
            return kind, {}, b""
        return plain(request)

    with served(answer) as url:
        assert staged(tmp_path, f"{url}/a", f"{url}/b") == (2, 0)


@pytest.mark.parametrize(
    "reply",
    [
        (503, {}, b""), (500, {}, b""), (301, {}, b""), (302, {"Location": "ftp://x/"}, b""), (404, {}, b""),
        (302, {"Location": "http://[::1/x"}, b""), (302, {"Location": "/bad"}, b""), (0, {}, b""), (418, {}, b""),
        (302, {"Location": "http://u:p@127.0.0.1:1/x"}, b""), (200, {"Content-Length": "x"}, b""), (206, {}, b"a"),
    ],
)  # fmt: skip
def test_one_bad_address_never_ends_the_others(tmp_path: Path, reply: Reply) -> None:
    with served(lambda request: reply if request.path == "/bad" else plain(request)) as url:
        assert staged(tmp_path, f"{url}/a", f"{url}/bad", "http://127.0.0.1:1/dead", f"{url}/b") == (2, 2)


def test_a_host_that_is_not_there_fails_with_its_reason(tmp_path: Path) -> None:
    done = stage(listed(tmp_path, "http://127.0.0.1:1/dead.bin?sig=s3cr3t"), tmp_path / "dest", Selection())
    assert done.n_failed == 1 and "refused" in done.failed_examples[0] and "s3cr3t" not in done.failed_examples[0]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed_to_other_servers(tmp_path: Path, status: int) -> None:
    with (
        served(plain) as far,
        served(lambda request: (status, {"Location": f"{far}{request.path}?signed=1"}, b"moved")) as url,
    ):
        assert staged(tmp_path, f"{url}/a", f"{url}/b") == (2, 0)


def test_redirects_for_ever_are_given_up(tmp_path: Path) -> None:
    with served(lambda request: (302, {"Location": f"{request.path}x"}, b"")) as url:
        done = stage(listed(tmp_path, f"{url}/a"), tmp_path / "dest", Selection())
    assert done.n_failed == 1 and "redirects" in done.failed_examples[0]


def test_a_redirect_never_leaves_https_nor_takes_credentials() -> None:
    assert _redirected("http://a/x", "https://b/y#z", "w") == "https://b/y"
    assert _redirected("https://a/x/y", "../z", "w") == "https://a/z"
    for to in ("http://a/x", "file:///etc/passwd", "https://u@b/", "https://u:p@b/", "https://b:port/"):
        with pytest.raises(Failure) as refused:
            _redirected("https://a/x", to, "w")
        assert refused.value.kind == "never" and to not in str(refused.value)


@pytest.mark.parametrize(
    "line",
    ["http://[::1/x", "http://h:port/x?token=s3cr3t", "http://u:s3cr3t@h/x", "http:///x", "gopher://h/x?token=s3cr3t"],
)
def test_a_line_that_is_no_address_is_named_without_its_secrets(
    tmp_path: Path, line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "list.txt").write_text(f"http://h/a\n{line}\n")
    assert cli.main(["stage", str(tmp_path / "list.txt"), str(tmp_path / "dest")]) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "line 2" in said and "s3cr3t" not in said
    assert not (tmp_path / "dest").exists()


@pytest.mark.parametrize("source", ["http://[::1/x", "http://h:port/x.txt?token=s3cr3t", "https://u:s3cr3t@h/x"])
def test_an_address_that_is_none_is_one_line(tmp_path: Path, source: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["stage", source, str(tmp_path / "dest")]) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "s3cr3t" not in said


def test_a_list_is_asked_for_again_and_by_its_redirect(tmp_path: Path) -> None:
    left = [2]

    def answer(request: BaseHTTPRequestHandler) -> Reply:
        if request.path == "/list.txt":
            left[0] -= 1
            return (503, {}, b"") if left[0] >= 0 else (302, {"Location": "/real.txt"}, b"")
        return (200, {}, b"a\nb\n") if request.path == "/real.txt" else plain(request)

    with served(answer) as url:
        done = stage(open_source(f"{url}/list.txt"), tmp_path / "dest", Selection())
    assert (done.copied, done.n_failed) == (2, 0)


def test_keys_of_hostile_addresses_stay_below_the_destination(tmp_path: Path) -> None:
    with served(plain) as url:
        lines = ["%2e%2e/up", "a%0ab", "x/%2E%2E/%2E%2E/up", "%00", "good", "a//b", "%1b[31m"]
        (tmp_path / "list.txt").write_text("\n".join(f"{url}/{line}" for line in lines))
        done = stage(open_source(str(tmp_path / "list.txt")), tmp_path / "in/dest", Selection())
    assert (done.copied, done.n_refused) == (1, len(lines) - 1)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file() and "flatout" not in str(path)] == [
        "list.txt", "good"
    ]  # fmt: skip


def test_a_proxy_of_the_environment_is_asked_and_its_secret_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str | None]] = []

    def answer(request: BaseHTTPRequestHandler) -> Reply:
        seen.append((request.path, request.headers.get("Proxy-Authorization")))
        return plain(request)

    with served(answer) as proxy:
        monkeypatch.setenv("http_proxy", proxy.replace("//", "//user:s3cr3t@"))
        monkeypatch.setenv("no_proxy", "")
        assert staged(tmp_path, "http://nowhere.invalid/a") == (1, 0)
        assert seen[0] == ("http://nowhere.invalid/a", "Basic dXNlcjpzM2NyM3Q=")
        monkeypatch.setenv("no_proxy", "nowhere.invalid")
        requests = HttpRequests(follow=True)
        with pytest.raises(Failure) as failed:
            requests.request("GET", "http://nowhere.invalid/a", "a")
    assert "s3cr3t" not in str(failed.value)
