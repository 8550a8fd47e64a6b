"""The server: its tools, resources and prompts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError

from flatout.errors import FlatoutError
from flatout.machine.snapshot import take_snapshot
from flatout.mcp_server import arguments as given
from flatout.mcp_server.checked import CheckedServer
from flatout.mcp_server.jobs import Jobs
from flatout.mcp_server.tools import QUICK_S, Tools
from flatout.report.agent_guide import guide_lines
from flatout.version import __version__

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

    server = CheckedServer(
        "flatout", instructions=INSTRUCTIONS, version=__version__, lifespan=lifespan, log_level="ERROR"
    )
    Tools(root, jobs).register(server)

    @server.resource("flatout://jobs/{job}/result", mime_type="application/json")
    def job_result(job: str) -> str:
        """All of a job's result; as plain text, what it printed, where there is none."""
        try:
            found = jobs.find(job)
        except FlatoutError as error:
            raise ResourceError(str(error)) from None
        whole = found.result
        return json.dumps(whole, ensure_ascii=False) if whole is not None else found.printed

    @server.resource("flatout://jobs/{job}/output", mime_type="text/plain")
    def job_output(job: str) -> str:
        """What a job and its command printed beside the result: the last megabyte, without escape codes."""
        try:
            return jobs.find(job).printed
        except FlatoutError as error:
            raise ResourceError(str(error)) from None

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
