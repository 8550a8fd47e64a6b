"""Files of a web server by a list, from a real server on loopback; and lists that are refused."""

from __future__ import annotations

import http.server
import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from flatout.errors import UsageError
from flatout.stage.selection import Selection
from flatout.stage.sources.base import StoreOptions
from flatout.stage.sources.open import open_source
from flatout.stage.staging import stage
from flatout.stage.transfer import Options

ASKED: list[str] = []


class Handler(http.server.SimpleHTTPRequestHandler):
    """Python's own server: sizes and times, no ranges, no ETag."""

    def log_message(self, *args: object) -> None:
        ASKED.append(f"{self.command} {self.path}")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number in range(20):
        path = tmp_path / f"www/set/c{number % 2}/{number} a.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(500 + number))
    return tmp_path / "www"


@pytest.fixture
def server(root: Path) -> Iterator[str]:
    ASKED.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(root))) as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{made.server_address[1]}"
        made.shutdown()
        thread.join()


@pytest.mark.slow
def test_a_list_on_the_server_arrives_and_is_kept(root: Path, server: str, tmp_path: Path) -> None:
    lines = [f"c{n % 2}/{n}%20a.bin" for n in range(19)] + [f"{server}/set/c1/19%20a.bin?signature=secret  # last"]
    (root / "set/files.txt").write_text("# a comment\n" + "\n".join(lines))
    done = stage(open_source(f"{server}/set/files.txt?key=secret"), tmp_path / "dest", Selection())
    assert (done.copied, done.n_failed) == (20, 0) and "secret" not in str(done)
    assert done.source == f"{server}/set/files.txt"
    for number in range(20):
        key = f"c{number % 2}/{number} a.bin"
        assert (tmp_path / "dest" / key).read_bytes() == (root / "set" / key).read_bytes()
    assert any("signature=secret" in line for line in ASKED)
    again = stage(open_source(f"{server}/set/files.txt"), tmp_path / "dest", Selection())
    assert (again.copied, again.kept) == (0, 20)
    chosen = stage(open_source(f"{server}/set/files.txt"), tmp_path / "one", Selection(splits=("c1",)))
    assert chosen.copied == 10


def test_a_local_list_and_a_single_file_work(root: Path, server: str, tmp_path: Path) -> None:
    (tmp_path / "urls.txt").write_text(f"{server}/set/c0/0%20a.bin\n{server}/set/c0/2%20a.bin\n")
    done = stage(open_source(str(tmp_path / "urls.txt")), tmp_path / "dest", Selection())
    assert done.copied == 2 and (tmp_path / "dest/127.0.0.1/set/c0/2 a.bin").exists()
    one = stage(open_source(f"{server}/set/c0/4%20a.bin"), tmp_path / "one", Selection())
    assert one.copied == 1 and (tmp_path / "one/4 a.bin").exists()


def test_an_archive_is_unpacked_from_a_server_without_ranges(root: Path, server: str, tmp_path: Path) -> None:
    import tarfile

    with tarfile.open(root / "set.tar", "w") as tar:
        tar.add(root / "set", "set")
    done = stage(open_source(f"{server}/set.tar"), tmp_path / "dest", Selection(), Options(unpack=True))
    assert done.n_failed == 0 and done.total_files == 20
    assert sum(line.startswith("GET") for line in ASKED) == 2
    assert (tmp_path / "dest/set/c0/0 a.bin").read_bytes() == (root / "set/c0/0 a.bin").read_bytes()


def test_a_large_file_of_a_server_without_ranges_is_read_once(root: Path, server: str, tmp_path: Path) -> None:
    (root / "large.bin").write_bytes(os.urandom(40_000_000))
    done = stage(open_source(f"{server}/large.bin"), tmp_path / "dest", Selection())
    assert done.n_failed == 0
    assert (tmp_path / "dest/large.bin").read_bytes() == (root / "large.bin").read_bytes()
    # One is asked for a byte, to see whether there are ranges, and hung up on.
    assert sum(line.startswith("GET") for line in ASKED) == 2


def test_what_is_missing_is_named_and_the_rest_staged(root: Path, server: str, tmp_path: Path) -> None:
    (root / "files.txt").write_text("set/c0/0%20a.bin\nset/gone.bin\n")
    done = stage(open_source(f"{server}/files.txt"), tmp_path / "dest", Selection())
    assert (
        (done.copied, done.n_failed) == (1, 1)
        and "gone.bin" in done.failed_examples[0]
        and "404" in done.failed_examples[0]
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no addresses in it"),
        ("ftp://host/file", "no http or https address"),
        ("http://user:word@host/file", "credentials do not belong"),
        ("http://host/a?x=1\nhttp://host/a?x=2", "two addresses give the same name"),
    ],
)
def test_lists_that_cannot_be_used_are_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "urls.txt").write_text(text)
    with pytest.raises(UsageError, match=said) as refused:
        open_source(str(tmp_path / "urls.txt"))
    assert "word" not in str(refused.value)


def test_a_list_that_is_not_there_is_one_line(server: str) -> None:
    with pytest.raises(UsageError, match=r"the list cannot be read: .*404"):
        open_source(f"{server}/none.txt")


def test_an_etag_of_32_digits_that_is_no_md5_fails_nothing(root: Path, tmp_path: Path) -> None:
    """Starlette's static files have the MD5 of time and size; a bucket with keys of a key service any digits."""

    class Tagged(Handler):
        encryption = ""

        def end_headers(self) -> None:
            self.send_header("ETag", f'"{"0123456789abcdef" * 2}"')
            if self.encryption:
                self.send_header("x-amz-request-id", "1")
                self.send_header("x-amz-server-side-encryption", self.encryption)
            super().end_headers()

    for encryption in ("", "aws:kms"):
        Tagged.encryption = encryption
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Tagged, directory=str(root))) as made:
            thread = threading.Thread(target=made.serve_forever, daemon=True)
            thread.start()
            try:
                address = f"http://127.0.0.1:{made.server_address[1]}/set/c0/0%20a.bin"
                done = stage(open_source(address), tmp_path / f"dest{encryption}", Selection())
            finally:
                made.shutdown()
                thread.join()
        assert (done.n_failed, done.retries, done.verified) == (0, 0, {"size only": 1})


def test_a_bucket_encrypted_with_a_key_service_arrives(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    files = sorted(path for path in (root / "set").rglob("*.bin"))
    tag = f'"{"0123456789abcdef" * 2}"'

    class Bucket(Handler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if "list-type" in self.path:
                rows = "".join(
                    f"<Contents><Key>set/{path.relative_to(root / 'set')}</Key><Size>{path.stat().st_size}</Size>"
                    f"<ETag>{tag}</ETag><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
                    for path in files
                )
                self.answer(f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>".encode())
            else:
                self.answer(Path(self.translate_path(self.path.replace("/bucket/", "/"))).read_bytes())

        do_HEAD = do_GET

        def answer(self, body: bytes) -> None:
            self.send_response(200)
            for name, value in (
                ("ETag", tag), ("x-amz-request-id", "1"), ("x-amz-server-side-encryption", "aws:kms"),
                ("Content-Length", str(len(body))), ("Content-Type", "application/xml"),
                ("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT"),
            ):  # fmt: skip
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Bucket, directory=str(root))) as made:
        made.daemon_threads = True
        made.block_on_close = False
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        try:
            endpoint = f"http://127.0.0.1:{made.server_address[1]}"
            opened = open_source("s3://bucket/set", StoreOptions(endpoint=endpoint))
            done = stage(opened, tmp_path / "dest", Selection())
        finally:
            made.shutdown()
            thread.join()
    assert (done.copied, done.n_failed, done.retries, done.verified) == (20, 0, 0, {"size only": 20})
