"""A scripted S3 server: any keys, and any answer to any request."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "data"
Answer = tuple[int, dict[str, str], bytes]


class FakeS3:
    """A bucket.

    Attributes:
        objects: key -> content.
        page: keys a page of the listing holds.
        answer: asked before each request, with its method, path and query; what it gives is sent, None: the usual.
        asked: method, path (unquoted) and query of each request.
    """

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects, self.page = objects, 1000
        self.answer: Callable[[str, str, dict[str, str]], Answer | None] = lambda method, path, query: None
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.headers: list[dict[str, str]] = []
        self.endpoint = ""

    @property
    def listings(self) -> list[dict[str, str]]:
        """Queries of the listing requests."""
        return [query for _, _, query in self.asked if "list-type" in query]

    def usual(self, method: str, path: str, query: dict[str, str], headers: dict[str, str]) -> Answer:
        key = path.removeprefix(f"/{BUCKET}").removeprefix("/")
        if "list-type" in query:
            return 200, {}, self.listing(query).encode()
        if key not in self.objects:
            return 404, {}, b"<Error><Code>NoSuchKey</Code><Message>The key does not exist.</Message></Error>"
        data = self.objects[key]
        sent = {"ETag": f'"{hashlib.md5(data).hexdigest()}"', "x-amz-request-id": "1"}
        if "Range" in headers:
            start, end = (int(value) for value in headers["Range"].removeprefix("bytes=").split("-"))
            return 206, {**sent, "Content-Range": f"bytes {start}-{end}/{len(data)}"}, data[start : end + 1]
        return 200, sent, data

    def listing(self, query: dict[str, str]) -> str:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = unquote(query.get("continuation-token", "")) or query.get("start-after", "")
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        folders = sorted({prefix + k.removeprefix(prefix).partition(delimiter)[0] + delimiter
                          for k in keys if delimiter and delimiter in k.removeprefix(prefix)})  # fmt: skip
        plain = [key for key in keys if not delimiter or delimiter not in key.removeprefix(prefix)]
        shown, more = plain[: self.page], len(plain) > self.page
        rows = "".join(
            f"<Contents><Key>{quote(key)}</Key><Size>{len(self.objects[key])}</Size>"
            f"<ETag>&quot;{hashlib.md5(self.objects[key]).hexdigest()}&quot;</ETag></Contents>"
            for key in shown
        )
        rows += "".join(f"<CommonPrefixes><Prefix>{quote(name)}</Prefix></CommonPrefixes>" for name in folders)
        token = f"<NextContinuationToken>{escape(quote(shown[-1]))}</NextContinuationToken>" if more else ""
        return (
            '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<EncodingType>url</EncodingType><IsTruncated>{str(more).lower()}</IsTruncated>{token}{rows}"
            "</ListBucketResult>"
        )


@contextmanager
def fake_s3(objects: dict[str, bytes]) -> Iterator[FakeS3]:
    """Serve; ``endpoint`` of what is given is the server's."""
    fake = FakeS3(objects)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            path = unquote(parts.path, errors="surrogateescape")
            query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
            fake.asked.append((self.command, path, query))
            fake.headers.append(dict(self.headers))
            found = fake.answer(self.command, path, query)
            status, headers, body = found or fake.usual(self.command, path, query, dict(self.headers))
            if status == 0:  # the connection breaks
                self.close_connection = True
                return
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            # Who sends less than was said hangs up then.
            self.close_connection = int(headers.get("Content-Length", 0)) > len(body)
            if "Content-Length" not in headers:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # a client that went away

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    fake.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
