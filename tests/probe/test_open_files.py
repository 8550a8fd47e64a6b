"""Counting the files that are opened, while other threads open more."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from flatout.probe import open_files
from flatout.probe.open_files import OpenFiles

READS = """
import json, pathlib, sys
import h5py, numpy, pandas, torch, torchvision.io
from flatout.probe import open_files
from flatout.probe.hooks import native_opens
from flatout.probe.after_import import AfterImport

table = pandas.DataFrame({"a": range(5)})
table.to_parquet("t.parquet")
with h5py.File("a.h5", "w") as file:
    file["x"] = numpy.zeros(4)
torchvision.io.write_png(torch.zeros(3, 8, 8, dtype=torch.uint8), "p.png")
native_opens.watch_for(AfterImport(print, print).watch)
open_files.REC.on = True
sys.addaudithook(open_files.OPENED.audit)
assert len(pandas.read_parquet("t.parquet")) == len(pandas.read_parquet(pathlib.Path("t.parquet"))) == 5
import pyarrow.parquet
assert pyarrow.parquet.read_table(source="t.parquet").num_rows == 5
for _ in range(2):
    with h5py.File("a.h5", "r") as file:
        assert file["x"].shape == (4,)
    assert torchvision.io.read_image("p.png").shape == (3, 8, 8)
found = open_files.OPENED
opens = {name: count for name, count in found.extensions.items() if name != ".pyc"}
print(json.dumps({"opens": opens, "again": found.again[""]}))
"""


class Written:
    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def write(self, number: int, type_: str, fields: dict[str, Any]) -> None:
        self.entries.append(fields)


def test_the_summary_is_written_while_another_thread_opens_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files.REC, "on", True)
    opened = open_files.Opened()
    monkeypatch.setattr(open_files, "OPENED", opened)
    done = threading.Event()

    def open_many() -> None:
        number = 0
        while not done.is_set():
            opened.audit("open", (f"/data/{number}/a.py", None, os.O_RDONLY))
            number += 1

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread = threading.Thread(target=open_many)
    thread.start()
    written = Written()
    try:
        while len(written.entries) < 3_000 or opened.opens < 10_000:
            OpenFiles().write(written)
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(interval_s)
    OpenFiles().write(written)
    assert len(written.entries[-1]["dirs"]) == 64
    assert written.entries[-1]["extensions"] == {".py": opened.opens} == {".py": written.entries[-1]["opens"]}


def test_files_that_were_opened_before_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files.REC, "on", True)
    monkeypatch.setattr(open_files, "MOST_PATHS", 3)
    opened = open_files.Opened()
    for path in ("/a/1", "/a/2", "/a/1", "/b/1", "/b/2", "/b/2", "/a/1"):  # the last one of /b is remembered no more
        opened.audit("open", (path, None, os.O_RDONLY))
    assert (opened.folders, opened.again) == ({"/a": 4, "/b": 3}, {"/a": 2})


def test_remote_hosts_are_those_of_connected_sockets_which_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files.REC, "run", "/run/of/flatout")
    files = OpenFiles()
    unconnected, (one, other) = socket.socket(), socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as server, unconnected, one, other:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0] as accepted:
            files.look()
            client.sendall(b"still open")
            assert accepted.recv(10) == b"still open"
            assert files.peers[f"127.0.0.1:{port}"] == 1
            assert files.peers[f"127.0.0.1:{client.getsockname()[1]}"] == 1
        one.sendall(b"this too")
        assert other.recv(8) == b"this too"


@pytest.mark.slow
def test_files_that_libraries_open_by_themselves_are_counted(tmp_path: Path) -> None:
    script = tmp_path / "reads.py"
    script.write_text(READS)
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"opens": {".parquet": 3, ".h5": 2, ".png": 2}, "again": 4}
