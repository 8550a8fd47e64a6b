"""The tools: each starts a command of flatout, and answers with its result, or with a job to wait for."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field

from flatout.errors import FlatoutError, UsageError
from flatout.machine.snapshot import take_snapshot
from flatout.mcp_server import arguments as given
from flatout.mcp_server.answers import Answer, NextStep, answer
from flatout.mcp_server.jobs import CANCELLED, FAILED, Job, Jobs
from flatout.mcp_server.recipe_keys import recipe_keys
from flatout.plans.gpu_parts import chosen_part
from flatout.units import parse_duration

P = ParamSpec("P")
R = TypeVar("R")
QUICK_S = 25.0  # clients end calls after 60 s
AT_ONCE_S = 1.0  # long enough for a mistake in the arguments
LONGEST_WAIT_S = 45.0
_LOOK_EVERY_S = 0.05

Command = Annotated[str | list[str], Field(description='The training as you start it: "python train.py --epochs 3"')]
Folder = Annotated[str, Field(description="Working directory, below the folder where the server was started")]
Deadline = Annotated[float | None, Field(description="Seconds after which this is ended; what it has by then is kept")]
Run = Annotated[str, Field(description='Id of a recorded run, its folder, or "latest"')]
READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
RUNS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=True)
ENDS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)


class AssumedGpu(BaseModel):
    """What the maker of a GPU says of it."""

    name: str
    memory_bytes: int
    bandwidth_bytes_per_s: float
    peak_flop_per_s: dict[str, float] = Field(description="Of dense products, by precision")
    source: str
    note: str


class MachineAnswer(BaseModel):
    """What a training can use here, and what was assumed instead."""

    state: str = "done"
    spent_s: float
    left_s: float | None = Field(description="Until deadline_s, if one was given")
    seen: str = Field(description="In a line")
    cores: float | None
    memory_bytes: int | None
    shm_bytes: int | None
    gpus: list[dict[str, Any]] | None = Field(description="None: not measured")
    assumed: AssumedGpu | None = None
    next_step: NextStep


class RecipesAnswer(BaseModel):
    """Names with what they are for, sections with their meaning, or keys with meaning and value."""

    state: str = "done"
    spent_s: float
    left_s: float | None = Field(description="Until deadline_s, if one was given")
    result: dict[str, str]
    next_step: NextStep


def told(tool: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """Flatout's own errors reach the client with their message; others would come without."""

    @functools.wraps(tool)
    async def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await tool(*args, **kwargs)
        except FlatoutError as error:
            raise ToolError(str(error)) from None

    return wrapped


class Tools:
    """The tools on one root folder.

    Args:
        root: commands run in it, or below.
        jobs: that they start.
    """

    def __init__(self, root: Path, jobs: Jobs) -> None:
        self.root, self.jobs = root.resolve(), jobs

    def register(self, server: MCPServer) -> None:
        """Give the server all of them."""
        for tool, hints in (
            (self.machine, READS), (self.profile, RUNS), (self.report, READS), (self.explain, READS),
            (self.memory, RUNS), (self.plan, RUNS), (self.read_log, READS), (self.fix, RUNS), (self.try_change, RUNS),
            (self.batch_size, RUNS), (self.compare, RUNS), (self.stage, RUNS), (self.recipes, READS),
            (self.train, RUNS), (self.infer, RUNS),
            (self.status, READS), (self.result, READS), (self.cancel, ENDS),
        ):  # fmt: skip
            server.tool(annotations=hints)(told(tool))

    # --- what is there ---

    async def machine(
        self,
        assume: Annotated[str | None, Field(description="A GPU that you plan for and that is not here: A10")] = None,
        deadline_s: Deadline = None,
    ) -> MachineAnswer:
        """Cores, memory, /dev/shm and GPUs that a training can use here, quotas of containers included."""
        given.seconds("deadline_s", deadline_s)
        begun = anyio.current_time()
        machine = take_snapshot()
        gpus = None if machine.gpus is None else [_gpu(one) for one in machine.gpus]
        names = ", ".join(str(one.get("name")) for one in gpus or []) or "no GPU"
        part = chosen_part(assume, "assume") if assume is not None else None
        spent_s = anyio.current_time() - begun
        return MachineAnswer(
            spent_s=round(spent_s, 1),
            left_s=None if deadline_s is None else round(max(deadline_s - spent_s, 0.0), 1),
            seen=machine.one_line(),
            cores=machine.cores.usable,
            memory_bytes=machine.memory.limit_bytes or machine.memory.total_bytes,
            shm_bytes=machine.shm.size_bytes,
            gpus=gpus,
            assumed=part
            and AssumedGpu(
                name=part.name,
                memory_bytes=part.memory_bytes,
                bandwidth_bytes_per_s=part.bandwidth,
                peak_flop_per_s=dict(part.peaks),
                source=f"{part.source}, {part.date:%Y-%m-%d}",
                note=f"it is not here: this machine has {names}; the figures are its maker's",
            ),
            next_step=NextStep(
                tool="profile",
                arguments={"seconds": 30},
                needs=["command"],
                why="measure before you choose a setting",
            ),
        )

    async def report(self, run: Run = "latest", folder: Folder = ".", deadline_s: Deadline = None) -> Answer:
        """The report of a recorded run: verdict, where the time went, causes, remedies with predicted gains."""
        place = given.folder_below(self.root, folder)
        return await self._quick(
            "report", ["report", given.run_below("run", self.root, place, run)], folder, deadline_s
        )

    async def explain(
        self, cause: Annotated[str, Field(description="Id, as reports name it")], deadline_s: Deadline = None
    ) -> Answer:
        """What a cause means, how it is found, and what to do."""
        return await self._quick("explain", ["explain", given.not_an_option("cause", cause)], ".", deadline_s)

    async def read_log(
        self,
        paths: Annotated[list[str], Field(description="Logs, or folders of logs", min_length=1, max_length=50)],
        folder: Folder = ".",
        deadline_s: Deadline = None,
    ) -> Answer:
        """What logs of a run that flatout did not record say: throughput, projected end, claims checked."""
        place = given.folder_below(self.root, folder)
        return await self._quick(
            "read_log", ["read", *(given.path_below(self.root, place, path) for path in paths)], folder, deadline_s
        )

    # --- measurements of a command ---

    async def profile(
        self,
        context: Context,
        command: Command,
        folder: Folder = ".",
        seconds: Annotated[float, Field(description="Measured after the first step")] = 30.0,
        deadline_s: Deadline = None,
    ) -> Answer:
        """Start the unchanged training, measure where its time goes, end it, and diagnose."""
        return await self._long("profile", [f"--seconds={_time('seconds', seconds)}"], command, folder, deadline_s)

    async def memory(self, command: Command, folder: Folder = ".", deadline_s: Deadline = None) -> Answer:
        """Predict the GPU memory of a step by batch size; the command runs for two steps."""
        return await self._long("memory", [], command, folder, deadline_s)

    async def fix(
        self,
        command: Command,
        folder: Folder = ".",
        budget_s: float = 300.0,
        allow: Annotated[list[str], Field(description="numerics, data, optimisation", max_length=3)] = [],  # noqa: B006
        deadline_s: Deadline = None,
    ) -> Answer:
        """Try remedies on the unchanged training one at a time, keep what is faster, and prove the result."""
        options = [f"--budget={_budget(budget_s, deadline_s)}"]
        options += [f"--allow={given.not_an_option('allow', one)}" for one in allow]
        return await self._long("fix", options, command, folder, deadline_s)

    async def try_change(
        self,
        command: Command,
        patch: Annotated[str | None, Field(description="Text of `git diff`")] = None,
        settings: Annotated[dict[str, str], Field(description="Of `flatout apply --list`: num_workers: 4")] = {},  # noqa: B006
        environment: Annotated[dict[str, str], Field(description="Variables: OMP_NUM_THREADS: 1")] = {},  # noqa: B006
        other_command: Annotated[str | None, Field(description="Another command, for the whole change")] = None,
        folder: Folder = ".",
        budget_s: float = 300.0,
        deadline_s: Deadline = None,
    ) -> Answer:
        """Judge changes, each a candidate: faster or not, the same training or not; files stay as they are."""
        options = [f"--budget={_budget(budget_s, deadline_s)}"]
        options += [f"--set={given.not_an_option('setting', name)}={value}" for name, value in settings.items()]
        options += [f"--env={given.not_an_option('variable', name)}={value}" for name, value in environment.items()]
        if other_command is not None:
            given.command_words(other_command)
            options.append(f"--command={other_command}")
        if patch is not None:
            options.append("--patch=-")
        if len(options) == 1:
            raise UsageError("there is no change to judge: give patch, settings, environment or other_command")
        stdin = given.patch_bytes(patch) if patch is not None else b""
        return await self._long("try_change", options, command, folder, deadline_s, stdin)

    async def batch_size(
        self, command: Command, folder: Folder = ".", budget_s: float = 300.0, deadline_s: Deadline = None
    ) -> Answer:
        """The batch size beyond which samples/s stop growing, or memory ends; measured on the unchanged command."""
        options = [f"--budget={_budget(budget_s, deadline_s)}"]
        return await self._long("batch_size", options, command, folder, deadline_s)

    async def plan(
        self,
        deadline: Annotated[str, Field(description="Of the training, from its start: 11m")],
        epochs: Annotated[int, Field(ge=1)],
        folds: Annotated[int, Field(ge=1)] = 1,
        reserve: Annotated[str | None, Field(description="Of it, kept for the last prediction: 40s")] = None,
        gpu: Annotated[str | None, Field(description="Predict it on this GPU, from a run on another: H100-SXM")] = None,
        steps_per_epoch: Annotated[int | None, Field(ge=1, description="Where the recording does not say")] = None,
        look_s: Annotated[float, Field(description="Recorded of the command, from its first step")] = 60.0,
        after: Annotated[str | None, Field(description="File of `flatout fix --json`, whose gain counts")] = None,
        price: Annotated[str | None, Field(description="Of the machine: 1.20/h")] = None,
        run: Annotated[str | None, Field(description="A recorded run or a log; takes no time")] = None,
        command: Annotated[str | list[str] | None, Field(description="Or: the training, recorded for look_s")] = None,
        folder: Folder = ".",
        deadline_s: Deadline = None,
    ) -> Answer:
        """What of a training ends in time, with its probability, and what to cut."""
        options = [f"--deadline={deadline}", f"--epochs={epochs}", f"--folds={folds}"]
        options += [f"--reserve={reserve}"] if reserve is not None else []
        options += [f"--gpu={gpu}"] if gpu is not None else []
        options += [f"--steps-per-epoch={steps_per_epoch}"] if steps_per_epoch is not None else []
        options += [f"--price={price}"] if price is not None else []
        place = given.folder_below(self.root, folder)
        options += [f"--after={given.path_below(self.root, place, after)}"] if after is not None else []
        if (run is None) == (command is None):
            raise UsageError("give either run (of a recording, or a log), or command")
        if run is not None:
            words = ["plan", *options, given.run_below("run", self.root, place, run)]
            return await self._quick("plan", words, folder, deadline_s)
        options.append(f"--look={_time('look_s', look_s)}s")
        return await self._long("plan", options, command or "", folder, deadline_s)

    async def compare(
        self,
        a: Annotated[str, Field(description="A recorded run, or a command")],
        b: Annotated[str, Field(description="Of the same kind")],
        folder: Folder = ".",
        deadline_s: Deadline = None,
    ) -> Answer:
        """Which of two trainings is faster, and by how much; two commands are run in turn."""
        place = given.folder_below(self.root, folder)
        words = ["compare"]
        for name, value in (("a", a), ("b", b)):
            is_command = len(given.command_words(value)) > 1
            words.append(
                given.not_an_option(name, value) if is_command else given.run_below(name, self.root, place, value)
            )
        return await self._answer(self._start("compare", words, folder, deadline_s), QUICK_S)

    # --- data and recipes ---

    async def stage(
        self,
        source: Annotated[str, Field(description="s3://bucket/prefix, https://..., or a folder")],
        destination: Annotated[str, Field(description="Folder next to the GPU")],
        dry_run: Annotated[bool, Field(description="List and predict; copy nothing")] = True,
        folder: Folder = ".",
        deadline_s: Deadline = None,
    ) -> Answer:
        """Copy a data set next to the GPU: checked, resumable. Without dry_run=false nothing is copied."""
        place = given.folder_below(self.root, folder)
        words = ["stage", given.not_an_option("source", source), given.path_below(self.root, place, destination)]
        return await self._answer(self._start("stage", [*words, *["--dry-run"] * dry_run], folder, deadline_s))

    async def train(
        self,
        recipe: Annotated[str, Field(description="A name of the tool recipes, or a file: demo")],
        data: Annotated[str | None, Field(description="Folder of the images")] = None,
        max_time: Annotated[str | None, Field(description="Deadline; epochs are planned to fit: 11m")] = None,
        epochs: Annotated[int | None, Field(ge=1)] = None,
        output: Annotated[str | None, Field(description="Folder of the results")] = None,
        settings: Annotated[
            dict[str, str], Field(description="Keys of the recipe, see recipes: model.name: resnet18")
        ] = {},  # noqa: B006
        folder: Folder = ".",
        deadline_s: Deadline = None,
    ) -> Answer:
        """Train by a recipe of flatout, into a deadline if one is given."""
        place = given.folder_below(self.root, folder)
        words = ["train", given.not_an_option("recipe", recipe)]
        words += [f"--data={given.plain(data)[0]}"] if data is not None else []
        words += [f"--max-time={max_time}"] if max_time is not None else []
        words += [f"--epochs={epochs}"] if epochs is not None else []
        words += [f"--output={given.path_below(self.root, place, output)}"] if output is not None else []
        words += [f"--set={name}={value}" for name, value in settings.items()]
        planned_s = parse_duration(max_time, option="max_time") if max_time is not None else None
        job = self._start("train", words, folder, deadline_s)
        job.planned_s = planned_s
        return await self._answer(job)

    async def recipes(
        self,
        recipe: Annotated[str | None, Field(description="A name; without one, all are listed")] = None,
        section: Annotated[str | None, Field(description="Show the keys of this section: training, data")] = None,
        folder: Folder = ".",
        deadline_s: Deadline = None,
    ) -> RecipesAnswer:
        """The shipped recipes of train; of one its sections; of a section its keys, each with meaning and value."""
        given.seconds("deadline_s", deadline_s)
        place = given.folder_below(self.root, folder)
        begun = anyio.current_time()
        file_of = functools.partial(given.path_below, self.root, place)
        found = await anyio.to_thread.run_sync(recipe_keys, recipe, section, file_of)
        spent_s = anyio.current_time() - begun
        left_s = None if deadline_s is None else round(max(deadline_s - spent_s, 0.0), 1)
        return RecipesAnswer(spent_s=round(spent_s, 1), left_s=left_s, result=found, next_step=_after_recipes(recipe))

    async def infer(
        self,
        training: Annotated[str, Field(description="Folder of a training by a recipe")],
        data: Annotated[str, Field(description="Folder to predict")],
        output: Annotated[str, Field(description="File of the predictions: submission.csv")],
        folder: Folder = ".",
        deadline_s: Deadline = None,
    ) -> Answer:
        """Predict with a training of flatout, and write the predictions."""
        place = given.folder_below(self.root, folder)
        words = ["infer", given.path_below(self.root, place, training), f"--data={given.plain(data)[0]}"]
        words.append(f"--output={given.path_below(self.root, place, output)}")
        return await self._answer(self._start("infer", words, folder, deadline_s), QUICK_S)

    # --- jobs ---

    async def status(
        self,
        context: Context,
        job: str,
        wait_s: Annotated[float, Field(ge=0, le=LONGEST_WAIT_S, description="Longest time to wait for its end")] = 20.0,
    ) -> Answer:
        """Whether a job is still running; its result once it is over."""
        return await self._answer(self.jobs.find(job), wait_s, context)

    async def result(self, job: str) -> Answer:
        """The result of a job, or its state."""
        return answer(self.jobs.find(job))

    async def cancel(self, job: str) -> Answer:
        """End a job and all its processes; what it measured so far is reported where it can be."""
        found = self.jobs.find(job)
        await anyio.to_thread.run_sync(found.end, CANCELLED)
        return answer(found)

    # --- how they run ---

    def _start(self, tool: str, words: list[str], folder: str, deadline_s: float | None, stdin: bytes = b"") -> Job:
        place = given.folder_below(self.root, folder)
        limit_s = given.seconds("deadline_s", deadline_s)
        name, *rest = given.plain(*words)
        return self.jobs.start(tool, [name, "--json", *rest], place, limit_s, stdin)

    async def _quick(self, tool: str, words: list[str], folder: str, deadline_s: float | None) -> Answer:
        job = self._start(tool, words, folder, deadline_s)
        found = await self._answer(job, QUICK_S)
        if found.state == FAILED:
            raise UsageError(found.summary)
        return found

    async def _long(
        self,
        tool: str,
        options: list[str],
        command: str | list[str],
        folder: str,
        deadline_s: float | None,
        stdin: bytes = b"",
    ) -> Answer:
        name = {"try_change": "try", "batch_size": "batch-size"}.get(tool, tool)
        words = [name, *options, "--", *given.command_words(command)]
        return await self._answer(self._start(tool, words, folder, deadline_s, stdin))

    async def _answer(self, job: Job, wait_s: float = AT_ONCE_S, context: Context | None = None) -> Answer:
        """The job's answer, after its end or the time to wait; the client hears of its progress meanwhile."""
        begun = anyio.current_time()
        shown = ""
        while job.running and anyio.current_time() - begun < wait_s:
            await anyio.sleep(_LOOK_EVERY_S)
            if context is not None and (line := job.progress) != shown:
                shown = line
                await context.report_progress(job.spent_s, job.deadline_s, line)
        return answer(job)


def _after_recipes(recipe: str | None) -> NextStep:
    known = {} if recipe is None else {"recipe": recipe}
    needs = ["data"] if recipe is not None else ["recipe", "data"]
    return NextStep(tool="train", arguments=known, needs=needs, why="with keys of its sections as settings")


def _gpu(gpu: Any) -> dict[str, Any]:
    return {name: getattr(gpu, name) for name in ("name", "memory_total_bytes") if hasattr(gpu, name)}


def _time(name: str, value: float) -> str:
    given.seconds(name, value)
    return f"{value:.3f}"


def _budget(budget_s: float, deadline_s: float | None) -> str:
    """The budget of a search: it has to end before it is ended."""
    given.seconds("deadline_s", deadline_s)
    return _time("budget_s", budget_s if deadline_s is None else min(budget_s, max(0.8 * deadline_s, 1.0)))
