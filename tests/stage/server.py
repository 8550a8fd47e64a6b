"""A real S3 server on loopback: SeaweedFS, from its wheel."""

from __future__ import annotations

import os
import random
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
# Below those that Linux gives to clients: a port that is free when it is looked at could be a client's a moment later.
PORTS = (12_000, 22_000)
STARTS = 5  # other tests may start a server at the same moment, on the same port
READY_WITHIN_S = 100


def weed() -> str | None:
    """The server's program, beside the interpreter or on the PATH."""
    beside = Path(sys.executable).parent / "weed"
    return str(beside) if beside.exists() else shutil.which("weed")


@contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """Run a server over ``folder``; gives its endpoint, with the keys above and one bucket."""
    for start in range(STARTS):
        server, endpoint = _start(folder / f"start-{start}")
        try:
            if not _is_ready(endpoint, server):
                continue
            yield endpoint
            return
        finally:
            server.kill()
            server.wait()
    raise AssertionError((folder / f"start-{STARTS - 1}" / "server.log").read_text(errors="replace")[-2000:])


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


def _start(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """A server that has just been started, and its endpoint."""
    program = weed()
    assert program is not None
    folder.mkdir(parents=True)
    port, master, volume, filer = _free_ports(4)
    command = [
        program, "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-s3.port={port}",
        "-admin.ui=false", "-webdav=false", f"-bucket={BUCKET}", f"-master.port={master}",
        f"-volume.port={volume}", f"-filer.port={filer}", "-s3.port.iceberg=0", "-s3.port.lance=0",
    ]  # fmt: skip
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}
    with open(folder / "server.log", "wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True, cwd=folder)
    return server, f"http://127.0.0.1:{port}"


def _is_ready(endpoint: str, server: subprocess.Popen[bytes]) -> bool:
    """Wait until the server stores an object; False: it has ended, since another program was given one of its ports."""
    import obstore

    store = bucket_store(endpoint)
    until = time.monotonic() + READY_WITHIN_S
    while server.poll() is None:
        try:
            obstore.put(store, "ready", b"1")
            obstore.delete(store, "ready")
        except Exception:
            assert time.monotonic() < until, f"{endpoint} stores nothing"
            time.sleep(0.2)
        else:
            return server.poll() is None
    return False


def _free_ports(count: int) -> list[int]:
    """Ports that nobody has now; servers of this kind take a second port, 10,000 above each."""
    found: list[int] = []
    while len(found) < count:
        port = random.Random().randrange(*PORTS)
        with socket.socket() as one, socket.socket() as two:
            try:
                one.bind(("127.0.0.1", port))
                two.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found
