"""The server as a process of its own: each tool on a small training, both transports, and every end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")

import anyio
import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from flatout.mcp_server.port import HEADERS_WITHIN_S
from tests.end_to_end.profiling import MARK, ONE_WORKER, marked, script
from tests.mcp_server.test_tools import called, ended, in_process

pytestmark = pytest.mark.slow
SERVER = ["-m", "flatout", "mcp"]
HALF_THE_PAUSE = """\
--- a/train.py
+++ b/train.py
@@ -11,1 +11,1 @@
-        time.sleep(0.01)
+        time.sleep(0.001)
"""


@pytest.fixture
def mark() -> Iterator[str]:
    """In the environment of all that a server starts."""
    made = uuid.uuid4().hex
    yield made
    assert marked(made) == []


def nothing_left(mark: str, patience_s: float = 60.0) -> None:
    limit = time.monotonic() + patience_s
    while marked(mark) and time.monotonic() < limit:
        time.sleep(0.1)
    assert marked(mark) == []


def command(folder: Path) -> list[str]:
    """A small training."""
    script(folder, ONE_WORKER)
    return [sys.executable, "train.py"]


def begin(process: subprocess.Popen[bytes], tool: str, arguments: dict[str, Any]) -> None:
    """Have a server on standard streams start a job."""
    assert process.stdin and process.stdout
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    for number, (method, parameters) in enumerate(
        [("initialize", client), ("tools/call", {"name": tool, "arguments": arguments})]
    ):
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}
        process.stdin.write(json.dumps(message).encode() + b"\n")
        if not number:
            process.stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        process.stdin.flush()
        assert b"error" not in process.stdout.readline()[:60]


def test_a_training_is_measured_planned_and_changed_over_standard_streams(tmp_path: Path, mark: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "1.bin").write_bytes(b"1" * 100)

    async def main() -> None:
        environment = {**os.environ, MARK: mark, "OMP_NUM_THREADS": "1"}
        started = StdioServerParameters(
            command=sys.executable, args=[*SERVER, "--root", str(tmp_path)], env=environment
        )
        async with Client(started) as client:
            words = command(tmp_path)
            found = await ended(client, await called(client, "profile", command=words, seconds=3, deadline_s=200))
            assert found["state"] == "done" and 0 < found["spent_s"] < 200 and found["left_s"] > 0
            assert found["summary"].startswith("The training waits")
            assert found["next_step"] == {
                "tool": "explain",
                "arguments": {"cause": found["result"]["causes"][0]["id"]},
                "needs": [],
                "why": "what the first cause means",
            }
            whole = await client.read_resource(found["resource"])
            assert len(whole.contents[0].text) > len(str(found["result"]))  # type: ignore[union-attr]
            await called(client, "explain", **found["next_step"]["arguments"])
            for tool, arguments in (
                ("report", {}),
                ("plan", {"deadline": "5m", "epochs": 3, "run": "latest"}),
                ("compare", {"a": "latest", "b": "latest"}),
                ("stage", {"source": "data", "destination": "copied"}),
            ):
                answer = await ended(client, await called(client, tool, **arguments))
                assert answer["state"] == "done" and answer["result"], (tool, answer)
            assert not (tmp_path / "copied").exists()  # a dry run
            page = await client.read_resource("flatout://runs/latest/report")
            assert "The training waits" in page.contents[0].text  # type: ignore[union-attr]

    anyio.run(main)
    nothing_left(mark)


def test_a_job_is_cancelled_or_ended_at_its_deadline_with_all_its_processes(tmp_path: Path) -> None:
    async def use(client: Client, _: Any) -> None:
        words = command(tmp_path)
        job = await called(client, "profile", command=words, seconds=300)
        while not (await called(client, "status", job=job["job"], wait_s=0.1))["progress"]:  # it has the folder
            pass
        second = await ended(client, await called(client, "profile", command=words))
        assert second["state"] == "failed" and "two at once would measure each other" in second["summary"]
        cancelled = await called(client, "cancel", job=job["job"])
        assert cancelled["state"] == "cancelled"
        late = await ended(client, await called(client, "profile", command=words, seconds=300, deadline_s=20))
        assert late["state"] == "out_of_time" and late["left_s"] < 20 and late["result"]["causes"]
        assert (await called(client, "result", job=job["job"]))["state"] == "cancelled"

    in_process(tmp_path, use)


@pytest.mark.parametrize("end", ["kill -9", "SIGTERM", "standard input is closed"])
def test_nothing_is_left_of_a_server_that_ends_in_the_middle_of_a_job(tmp_path: Path, mark: str, end: str) -> None:
    words = command(tmp_path)
    environment = {**os.environ, MARK: mark}
    process = subprocess.Popen(
        [sys.executable, *SERVER, "--root", str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
    )  # fmt: skip
    assert process.stdin and process.stdout
    begin(process, "fix", {"command": words, "budget_s": 120})
    limit = time.monotonic() + 100
    while not any("train.py" in line and "flatout" not in line for line in marked(mark)) and time.monotonic() < limit:
        time.sleep(0.1)
    if end == "kill -9":
        process.kill()
    elif end == "SIGTERM":
        process.send_signal(signal.SIGTERM)
    else:
        process.stdin.close()
    process.wait(60)
    process.stdin.close()
    process.stdout.close()
    nothing_left(mark)
    assert "time.sleep(0.01)" in (tmp_path / "train.py").read_text()


def test_a_port_serves_those_who_have_the_token_and_come_by_its_own_name(tmp_path: Path, mark: str) -> None:
    process = subprocess.Popen(
        [sys.executable, *SERVER, "--root", str(tmp_path), "--http"],
        stderr=subprocess.PIPE, env={**os.environ, MARK: mark}, text=True,
    )  # fmt: skip
    assert process.stderr
    address = process.stderr.readline().strip()
    header = process.stderr.readline().strip().partition(": ")
    right = {header[0]: header[2]}

    async def main() -> None:
        ask = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        async with httpx2.AsyncClient() as anybody:
            for wrong in ({}, {"Authorization": "Bearer x"}, {"Authorization": header[2][7:]}):
                assert (await anybody.post(address, json=ask, headers=wrong)).status_code == 401
            for name, value in (("Host", "evil.example"), ("Origin", "https://evil.example")):
                refused = await anybody.post(address, json=ask, headers={**right, name: value})
                assert refused.status_code in (403, 421), refused.text
        for _ in range(2):  # the end of a client's connection is not the server's
            async with (
                httpx2.AsyncClient(headers=right, timeout=60) as known,
                Client(streamable_http_client(address, http_client=known)) as client,
            ):
                found = await ended(client, await called(client, "profile", command="no-such-program"))
                assert found["exit_code"] == 127

    try:
        anyio.run(main)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stderr.close()
    nothing_left(mark)


def on_a_port(root: Path, mark: str) -> tuple[subprocess.Popen[str], int, str]:
    """A server, its port and the header that it wants."""
    process = subprocess.Popen(
        [sys.executable, *SERVER, "--root", str(root), "--http"],
        stderr=subprocess.PIPE, env={**os.environ, MARK: mark}, text=True,
    )  # fmt: skip
    assert process.stderr
    address, header = process.stderr.readline(), process.stderr.readline().strip()
    return process, int(address.rpartition(":")[2].partition("/")[0]), header


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_that_never_ends_does_not_hold_the_server(tmp_path: Path, mark: str, number: int) -> None:
    process, port, header = on_a_port(tmp_path, mark)
    lines = ("POST /mcp HTTP/1.1", f"Host: 127.0.0.1:{port}", header, "Content-Type: application/json",
             "Accept: application/json, text/event-stream", "Content-Length: 1000", "", "{")  # fmt: skip
    with socket.create_connection(("127.0.0.1", port)) as half:
        half.sendall("\r\n".join(lines).encode())
        time.sleep(1.0)
        process.send_signal(number)
        process.wait(30)  # for ever before
    assert process.stderr
    assert "flatout" not in process.stderr.read()
    process.stderr.close()
    nothing_left(mark)


def test_headers_that_do_not_arrive_close_their_connection(tmp_path: Path, mark: str) -> None:
    process, port, _ = on_a_port(tmp_path, mark)
    with socket.create_connection(("127.0.0.1", port)) as half, socket.create_connection(("127.0.0.1", port)) as idle:
        half.sendall(b"POST /mcp HTTP/1.1\r\nX")
        for one in (half, idle):
            one.settimeout(HEADERS_WITHIN_S + 30)
            assert one.recv(1) == b""
    process.send_signal(signal.SIGTERM)
    process.wait(30)
    assert process.stderr
    process.stderr.close()
    nothing_left(mark)


def test_a_client_that_closes_only_standard_output_ends_the_server(tmp_path: Path, mark: str) -> None:
    words = command(tmp_path)
    process = subprocess.Popen(
        [sys.executable, *SERVER, "--root", str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, MARK: mark},
    )  # fmt: skip
    assert process.stdin and process.stdout and process.stderr
    begin(process, "profile", {"command": words, "seconds": 300})
    process.stdout.close()
    assert process.wait(60) == 1
    assert process.stderr.read() == b""
    process.stdin.close()
    process.stderr.close()
    nothing_left(mark)


@pytest.mark.serial
def test_a_command_that_ignores_signals_is_over_at_its_deadline(tmp_path: Path) -> None:
    (tmp_path / "deaf.py").write_text(
        "import signal, time\nfor one in (2, 15):\n    signal.signal(one, signal.SIG_IGN)\ntime.sleep(600)\n"
    )

    async def use(client: Client, _: Any) -> None:
        job = await called(client, "profile", command=[sys.executable, "deaf.py"], deadline_s=10)
        late = await ended(client, job)
        assert late["state"] == "out_of_time" and late["summary"].startswith("ended at deadline_s (10 s)"), late
        assert late["spent_s"] < 18, late  # 20 if nobody kills it

    in_process(tmp_path, use)


def test_a_patch_is_judged_in_a_private_view(tmp_path: Path) -> None:
    async def use(client: Client, _: Any) -> None:
        words = command(tmp_path)
        before = (tmp_path / "train.py").read_text()
        judged = await called(client, "try_change", command=words, patch=HALF_THE_PAUSE, budget_s=45)
        judged = await ended(client, judged)
        assert judged["state"] == "done" and judged["exit_code"] in (0, 1), judged
        assert judged["summary"], judged
        assert (tmp_path / "train.py").read_text() == before

    in_process(tmp_path, use)
