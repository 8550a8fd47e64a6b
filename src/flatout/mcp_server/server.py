"""The server: tools, resources and prompts, over standard streams or on a port of this machine."""

from __future__ import annotations

import hmac
import json
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError
from mcp.server.transport_security import TransportSecuritySettings

from flatout.errors import FlatoutError, UsageError
from flatout.machine.snapshot import take_snapshot
from flatout.mcp_server import arguments as given
from flatout.mcp_server.jobs import Jobs
from flatout.mcp_server.tools import QUICK_S, Tools
from flatout.report.agent_guide import guide_lines
from flatout.version import __version__

HOST = "127.0.0.1"
INSTRUCTIONS = (
    "Flatout measures where a PyTorch training's time goes on its own unmodified command, predicts and proves what "
    "makes it faster, and plans it into a deadline. Measure (profile) before you change anything; judge each change "
    "alone (try_change). Long tools answer at once with a job: call status until its state is not running, and follow "
    "next_step. Figures are measured unless they are called predicted."
)
FASTER = (
    "Make this training faster: {command}\n\n"
    "1. machine, then profile with seconds=30; wait with status.\n"
    "2. Read the first causes (explain), and the predicted gains. If it waits for data, change the data path first.\n"
    "3. fix tries what needs no edit of code. For edits: one at a time, each judged by try_change with its patch.\n"
    "4. Keep only what was proved; say the measured factor with its interval, and never multiply predicted ones."
)
DEADLINE = (
    "Fit this training into {deadline}: {command}\n\n"
    "1. plan with this deadline, the epochs and folds wanted, a reserve for the prediction and its file.\n"
    "2. If what is wanted does not fit, take a row of its scenarios that does; a valid result first.\n"
    "3. Start it; for recipes of flatout, train with max_time plans by itself. Then predict, and write the file.\n"
    "4. Stop when the projected end passes the deadline. Report throughput and less work as two numbers."
)


def build(root: Path, jobs: Jobs) -> MCPServer:
    """The server.

    Args:
        root: commands run in this folder, or below.
        jobs: that its tools start.
    """

    @asynccontextmanager
    async def lifespan(_: MCPServer) -> AsyncIterator[None]:
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(jobs.close)

    server = MCPServer("flatout", instructions=INSTRUCTIONS, version=__version__, lifespan=lifespan, log_level="ERROR")
    Tools(root, jobs).register(server)

    @server.resource("flatout://jobs/{job}/result", mime_type="application/json")
    def job_result(job: str) -> str:
        """All that a job printed."""
        try:
            found = jobs.find(job)
        except FlatoutError as error:
            raise ResourceError(str(error)) from None
        whole = found.result
        return json.dumps(whole, ensure_ascii=False) if whole is not None else found.text

    @server.resource("flatout://runs/{run}/report", mime_type="text/markdown")
    async def run_report(run: str) -> str:
        """The report of a run that was recorded in the server's folder, as Markdown."""
        try:
            words = ["report", "--markdown", given.not_an_option("run", run)]
            job = jobs.start("report", words, root, QUICK_S)
        except FlatoutError as error:
            raise ResourceError(str(error)) from None
        while job.running:
            await anyio.sleep(0.05)
        if job.process.returncode:
            raise ResourceError(job.progress.removeprefix("flatout: "))
        return job.text

    @server.resource("flatout://guide", mime_type="text/markdown")
    def guide() -> str:
        """Rules for fast trainings, each with the case it comes from, and this machine's numbers."""
        return "\n".join(guide_lines(take_snapshot(), root))

    @server.prompt(title="Make this training faster")
    def make_this_training_faster(command: str) -> str:
        """Find what holds a training back, and prove what helps."""
        return FASTER.format(command=command)

    @server.prompt(title="Fit this into a deadline")
    def fit_this_into_a_deadline(command: str, deadline: str) -> str:
        """Plan a training, so that a valid result is there in time."""
        return DEADLINE.format(command=command, deadline=deadline)

    return server


def serve_standard_streams(root: Path) -> None:
    """Serve the client that started this process, until it closes standard input; then end all jobs."""
    jobs = Jobs()
    _end_at_signals(jobs)
    try:
        build(root, jobs).run("stdio")
    finally:
        jobs.close()


def serve_http(root: Path, port: int) -> None:
    """Serve on a port of this machine, to clients that send the token, until Ctrl-C; then end all jobs.

    Args:
        root: commands run in this folder, or below.
        port: 0: a free one.

    Raises:
        UsageError: the port is taken.
    """
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
    except OSError as error:
        listening.close()
        raise UsageError(f"--port {port}: {error.strerror}; leave it out for a free one") from None
    number = listening.getsockname()[1]
    token = secrets.token_urlsafe(24)
    jobs = Jobs()
    names = [f"{HOST}:{number}", f"localhost:{number}"]
    security = TransportSecuritySettings(allowed_hosts=names, allowed_origins=[f"http://{name}" for name in names])
    app = build(root, jobs).streamable_http_app(transport_security=security, host=HOST)
    print(f"http://{HOST}:{number}/mcp\nAuthorization: Bearer {token}", file=sys.stderr, flush=True)
    try:
        uvicorn.Server(uvicorn.Config(with_token(app, token), log_level="error")).run(sockets=[listening])
    finally:
        jobs.close()


Scope = MutableMapping[str, Any]
App = Callable[[Scope, Callable[..., Awaitable[Any]], Callable[..., Awaitable[Any]]], Awaitable[None]]


def with_token(app: App, token: str) -> App:
    """The application for those who send the token; 401 for others."""
    wanted = f"Bearer {token}".encode()

    async def guarded(
        scope: Scope, receive: Callable[..., Awaitable[Any]], send: Callable[..., Awaitable[Any]]
    ) -> None:
        if scope["type"] == "http":
            sent = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(sent, wanted):
                await send(
                    {"type": "http.response.start", "status": 401, "headers": [(b"www-authenticate", b"Bearer")]}
                )
                await send(
                    {"type": "http.response.body", "body": b"the header Authorization: Bearer TOKEN is needed\n"}
                )
                return
        await app(scope, receive, send)

    return guarded


def _end_at_signals(jobs: Jobs) -> None:
    """Signals end the jobs and then the process: a thread that reads standard input could hold an orderly exit up."""

    def end(number: int) -> None:
        jobs.close()
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: threading.Thread(target=end, args=(number,), daemon=True).start())
