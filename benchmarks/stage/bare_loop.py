"""The least that a client can do: signed GETs over kept connections, each body into a file. Two processes.

Usage: python bare_loop.py ENDPOINT BUCKET PREFIX DEST THREADS [md5]
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import http.client
import os
import re
import sys
import threading
from multiprocessing import Process
from urllib.parse import quote, urlsplit

PROCESSES = 2
EMPTY = hashlib.sha256(b"").hexdigest()


def sign(method: str, host: str, path: str, query: str) -> dict[str, str]:
    """Headers of AWS Signature Version 4 for a request without a body, region us-east-1."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{now[:8]}/us-east-1/s3/aws4_request"
    headers = {"host": host, "x-amz-content-sha256": EMPTY, "x-amz-date": now}
    names = ";".join(headers)
    canonical = "\n".join([method, path, query, *(f"{k}:{v}" for k, v in headers.items()), "", names, EMPTY])
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = b"AWS4" + os.environ["AWS_SECRET_ACCESS_KEY"].encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    credential = f"{os.environ['AWS_ACCESS_KEY_ID']}/{scope}"
    return {
        "x-amz-content-sha256": EMPTY,
        "x-amz-date": now,
        "Authorization": f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}",
    }


def get(link: http.client.HTTPConnection, host: str, path: str, query: str = "") -> bytes:
    """The body of a path."""
    link.request("GET", f"{path}?{query}" if query else path, headers=sign("GET", host, path, query))
    reply = link.getresponse()
    body = reply.read()
    if reply.status != 200:
        raise SystemExit(f"{path}: {reply.status} {body[:200]!r}")
    return body


def listed(host: str, bucket: str, prefix: str) -> list[tuple[str, str]]:
    """All keys below a prefix, with their ETags."""
    link, keys, token = http.client.HTTPConnection(host), [], ""
    while True:
        query = f"continuation-token={quote(token, safe='')}&" if token else ""
        text = get(link, host, f"/{bucket}", f"{query}list-type=2&prefix={quote(prefix, safe='')}").decode()
        keys += re.findall(r"<Key>(.*?)</Key>.*?<ETag>&#34;(.*?)&#34;</ETag>", text)
        more = re.search(r"<NextContinuationToken>(.*?)</NextContinuationToken>", text)
        if more is None:
            return keys
        token = more[1]


def work(host: str, bucket: str, dest: str, keys: list[tuple[str, str]], compare: bool) -> None:
    """Fetch keys one after the other."""
    link = http.client.HTTPConnection(host)
    for key, tag in keys:
        body = get(link, host, f"/{bucket}/{quote(key)}")
        if compare and hashlib.md5(body).hexdigest() != tag:
            raise SystemExit(f"{key}: not what was listed")
        with open(os.path.join(dest, key), "wb", buffering=0) as file:
            file.write(body)


def main() -> None:
    """List, and fetch in two processes of threads."""
    endpoint, bucket, prefix, dest, threads, *rest = sys.argv[1:]
    host = urlsplit(endpoint).netloc
    keys = listed(host, bucket, prefix)
    for folder in {os.path.dirname(key) for key, _ in keys}:
        os.makedirs(os.path.join(dest, folder), exist_ok=True)

    def half(mine: list[tuple[str, str]]) -> None:
        count = int(threads) // PROCESSES
        running = [
            threading.Thread(target=work, args=(host, bucket, dest, mine[n::count], bool(rest))) for n in range(count)
        ]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    running = [Process(target=half, args=(keys[n::PROCESSES],)) for n in range(PROCESSES)]
    for process in running:
        process.start()
    for process in running:
        process.join()
    raise SystemExit(max(process.exitcode or 0 for process in running))


if __name__ == "__main__":
    main()
