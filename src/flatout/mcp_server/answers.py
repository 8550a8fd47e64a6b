"""What every tool answers: at most 4 kB, with the time spent and left, and the next tool to call."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, Field

from flatout.mcp_server.digests import digest, sentence
from flatout.mcp_server.jobs import CANCELLED, DONE, FAILED, OUT_OF_TIME, RUNNING, Job
from flatout.terminal_text import readable

MOST_BYTES = 4000
_OWN = "flatout: "  # before each line of flatout's own
_LATER = 20.0  # seconds to wait for a job that runs
# Of a result, what is kept longest.
_FIRST = (
    "verdict",
    "run",
    "where_the_time_went",
    "causes",
    "remedies",
    "scenarios",
    "fits",
    "kept",
    "proof",
    "sizes",
    "claims",
    "next_command",
)


class NextStep(BaseModel):
    """A tool to call next, as it is where ``needs`` is empty."""

    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    needs: list[str] = Field(default_factory=list, description="Arguments of that tool that only the caller knows")
    why: str = ""


class Answer(BaseModel):
    """The state of a job, and its result as far as it fits."""

    job: str = Field(description="Its id, for status, result and cancel")
    state: str = Field(description="running, done, failed, cancelled or out_of_time")
    spent_s: float
    left_s: float | None = Field(description="Until deadline_s, or max_time of train, if one was given")
    exit_code: int | None = None
    progress: str = Field(default="", description="The latest line that it wrote")
    summary: str = Field(default="", description="The result in a sentence, or what went wrong")
    result: Any = Field(default=None, description="What its --json prints, shortened to fit; all of it: the resource")
    shortened: bool = False
    resource: str | None = None
    next_step: NextStep | None = Field(default=None, description="None: nothing follows from this")


def answer(job: Job) -> Answer:
    """The answer of a tool on this job."""
    left_s = job.left_s
    found = Answer(
        job=job.id,
        state=job.state,
        spent_s=round(job.spent_s, 1),
        left_s=None if left_s is None else round(left_s, 1),
        exit_code=job.process.returncode,
    )
    if found.state == RUNNING:
        wait_s = _LATER if not left_s else round(min(_LATER, left_s + 1.0), 1)
        found.progress = job.progress
        found.next_step = NextStep(tool="status", arguments={"job": job.id, "wait_s": wait_s}, why="it is running")
        return found
    whole = job.result
    found.summary = _summary(job, whole)
    found.resource = f"flatout://jobs/{job.id}/result"
    found.next_step = _next(job, found.state, whole)
    shown = digest(job.tool, whole)
    is_digest = shown is not whole
    if isinstance(shown, dict):  # the sentence stands in the summary
        shown = {name: one for name, one in shown.items() if one != found.summary}
    room = MOST_BYTES - len(found.model_dump_json(indent=2)) - 200
    found.result, found.shortened = shortened(
        shown if shown is not None else readable(job.text[:MOST_BYTES].encode()), room
    )
    found.shortened = found.shortened or is_digest
    return found


def _summary(job: Job, whole: Any) -> str:
    if isinstance(whole, dict):
        for name in ("verdict", "summary", "sentence"):
            if isinstance(whole.get(name), str):
                return str(whole[name])[:600]
    if told := sentence(job.tool, whole):
        return told[:600]
    said = _said(job)
    if job.state == FAILED:
        return said or job.progress or f"it ended with exit code {job.process.returncode}, and said nothing"
    if job.state == OUT_OF_TIME:
        return f"ended at deadline_s ({job.deadline_s:g} s), before there was a result" + (f": {said}" if said else "")
    if job.state == CANCELLED:
        return "cancelled before there was a result" + (f": {said}" if said else "")
    return ""


def _said(job: Job) -> str:
    """The last that flatout itself wrote; the command's output may stand before it on its line."""
    lines = [line.partition(_OWN) for line in job.messages.splitlines() if _OWN in line]
    return lines[-1][2].strip()[:600] if lines else ""


def _next(job: Job, state: str, whole: Any) -> NextStep | None:
    """What usually comes next."""
    if state == FAILED:
        return None
    causes = (whole.get("causes") or []) if isinstance(whole, dict) else []
    if job.tool == "profile" and causes and isinstance(causes[0], dict) and causes[0].get("id"):
        return NextStep(tool="explain", arguments={"cause": causes[0]["id"]}, why="what the first cause means")
    if job.tool == "train" and state == DONE and isinstance(whole, dict) and not whole.get("submission"):
        known = {"training": whole.get("folder"), "output": "submission.csv", "folder": str(job.folder)}
        return NextStep(tool="infer", arguments=known, needs=["data"], why="predict the folder data with it")
    return None


def shortened(value: Any, room: int) -> tuple[Any, bool]:
    """As much of a value as fits into so many bytes of indented JSON: shorter lists and texts, fewer levels.

    Of a dictionary, the names of ``_FIRST`` come first; no name takes more than half of the room that is left.
    """
    if not isinstance(value, dict):
        return _fitting(value, room)
    kept: dict[str, Any] = {}
    cut = False
    for name in (*(first for first in _FIRST if first in value), *(name for name in value if name not in _FIRST)):
        left = room - _bytes(kept)
        part, shorter = _fitting(value[name], left // 2 - len(name) - 8)
        cut = cut or shorter
        if part is not None or not shorter:
            kept[name] = part
    return kept, cut


def _fitting(value: Any, room: int) -> tuple[Any, bool]:
    if _bytes(value) <= room:
        return value, False
    for items, characters, levels in ((20, 400, 6), (8, 200, 5), (5, 160, 4), (3, 120, 3), (2, 80, 2), (1, 60, 1)):
        if _bytes(part := _cut(value, items, characters, levels)) <= room:
            return part, True
    return None, True


def _bytes(value: Any) -> int:
    # Every level stands two columns further to the right, inside the answer.
    return len(json.dumps({"result": value}, indent=2, ensure_ascii=False, default=str).encode())


def _cut(value: Any, items: int, characters: int, levels: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= characters else f"{value[:characters]}…"
    if isinstance(value, dict):
        if levels <= 0:
            return f"({len(value)} names)"
        return {name: _cut(one, items, characters, levels - 1) for name, one in value.items()}
    if isinstance(value, list | tuple):
        if levels <= 0:
            return f"({len(value)} items)"
        cut = [_cut(one, items, characters, levels - 1) for one in value[:items]]
        return cut if len(value) <= items else [*cut, f"({len(value) - items} more)"]
    return value
