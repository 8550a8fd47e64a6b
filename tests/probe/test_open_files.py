"""Counting the files that are opened, while other threads open more."""

from __future__ import annotations

import os
import socket
import sys
import threading
from typing import Any

import pytest

from flatout.probe import open_files
from flatout.probe.open_files import OpenFiles


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
