"""A real S3 server on loopback: SeaweedFS, from its wheel."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from obstore.store import S3Store

ACCESS, SECRET, BUCKET = "flatout-test", "flatout-secret-key", "data"


def weed() -> str | None:
    """The server's program, beside the interpreter or on the PATH."""
    beside = Path(sys.executable).parent / "weed"
    return str(beside) if beside.exists() else shutil.which("weed")


@contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """Run a server over ``folder``; gives its endpoint, with the keys above and one bucket."""
    program = weed()
    assert program is not None
    folder.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    command = [
        program, "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-s3.port={port}",
        "-admin.ui=false", "-webdav=false", f"-bucket={BUCKET}", f"-master.port={_free_port()}",
        f"-volume.port={_free_port()}", f"-filer.port={_free_port()}", "-s3.port.iceberg=0", "-s3.port.lance=0",
    ]  # fmt: skip
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}
    with open(folder / "server.log", "wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True, cwd=folder)
    try:
        endpoint = f"http://127.0.0.1:{port}"
        _wait_for(endpoint, server, folder / "server.log")
        yield endpoint
    finally:
        server.kill()
        server.wait()


def bucket_store(endpoint: str) -> S3Store:
    """The bucket, by a client that is not flatout's: what tests put there does not depend on what they test."""
    from obstore.store import S3Store

    return S3Store(
        BUCKET,
        config={
            "endpoint": endpoint, "region": "us-east-1", "access_key_id": ACCESS, "secret_access_key": SECRET
        },
        client_options={"allow_http": True}, retry_config={"max_retries": 0},
    )  # fmt: skip


def _wait_for(endpoint: str, server: subprocess.Popen[bytes], log: Path) -> None:
    import obstore

    store = bucket_store(endpoint)
    until = time.monotonic() + 60
    while True:
        try:
            obstore.put(store, "ready", b"1")
            obstore.delete(store, "ready")
            return
        except Exception:
            if server.poll() is not None or time.monotonic() > until:
                raise AssertionError(log.read_text(errors="replace")[-2000:]) from None
            time.sleep(0.2)


def _free_port() -> int:
    # Servers of this kind take a second port, 10,000 above the first.
    while True:
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            if port >= 55000:
                continue
            try:
                two.bind(("127.0.0.1", port + 10000))
            except OSError:
                continue
            return port
