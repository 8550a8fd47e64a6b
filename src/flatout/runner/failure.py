"""One clear line for a recording in which no training step was seen."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from flatout.record.fields import PROCESS
from flatout.record.json_files import read_json
from flatout.runner.live import what_was_seen
from flatout.runner.session import Outcome
from flatout.terminal_text import plain
from flatout.units import counted, duration

# An exception as a traceback names it: "ValueError: …", "my.package.Error".
_NAMED = re.compile(r"[A-Za-z_][\w.]*(: |:$|$)")


def explain(outcome: Outcome) -> tuple[str, int]:
    """The error message, and the exit code to end with."""
    processes = _processes(outcome.run)
    if outcome.stop == "failed":
        code = outcome.exit_code or 1
        exception = _exception(processes)
        if exception and "No module named 'torch'" in exception["exception"]:
            python = exception["executable"]
            return f"no torch in {python}: install it there, or put the interpreter that has it after `--`", code
        ended = f"signal {code - 128}" if code > 128 else f"exit code {code}"
        message = f"the command failed ({ended}) before its first training step"
        if outcome.live.first_step_ns:
            message = f"the command failed ({ended}) after {counted(outcome.live.steps, 'training step')}"
        if exception:
            return f"{message}: {plain(exception['exception'])}{_place(exception)}", code
        return f"{message}; its own messages are above", code
    seen = what_was_seen(outcome.run, outcome.live)
    if outcome.ended_with is not None:
        return f"ended before the first training step: {seen}", outcome.ended_with
    if outcome.exit_code == 0:
        return f"the command ended without a training step: {seen}", 2
    if outcome.waited_s is None and outcome.live.failed:
        return f"no training step could be recorded: {seen}", 2
    return (
        f"no training step was seen {_waited(outcome)}: {seen}; "
        "give it longer with --first-step-within, or check the command",
        2,
    )


def _waited(outcome: Outcome) -> str:
    return "in time" if outcome.waited_s is None else f"within {duration(outcome.waited_s)}"


def _place(exception: dict[str, Any]) -> str:
    """The innermost line that the traceback names, as `` (file:line)``."""
    found = re.findall(r'File "(.+?)", line (\d+)', "\n".join(exception["traceback"]))
    return f" ({found[-1][0]}:{found[-1][1]})" if found else ""


def _processes(run: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted((run / "processes").glob("*.json")):
        try:
            found.append(PROCESS(read_json(path), []))
        except (OSError, ValueError):
            continue
    return found


def _exception(processes: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The exception that began the failure.

    Of a tree of processes that is the first one of those that train: a launcher fails because a rank has, and the
    other ranks because they lost it. Of a chain of processes that started each other it is the innermost one's.
    """
    failed = [process for process in processes if (process.get("exit") or {}).get("exception")]
    parents = {process.get("ppid") for process in failed}
    origins = [process for process in failed if process.get("pid") not in parents] or failed
    if not origins:
        return None
    first = min(origins, key=lambda process: (process.get("worker") is not None, process.get("end_ns") or 0))
    exit_ = first["exit"]
    lines = exit_.get("traceback") or []
    exception = _first_line(exit_["exception"], lines)
    return {"exception": exception, "traceback": lines, "executable": first.get("executable")}


def _first_line(last: str, traceback: list[str]) -> str:
    """The line with the exception's name: a traceback ends with the last line of a message, which may have several."""
    frames = [number for number, line in enumerate(traceback) if line.startswith("  File ")]
    after = traceback[frames[-1] + 1 :] if frames else traceback
    named = [line for line in after if line and not line[0].isspace() and _NAMED.match(line)]
    found = named[0] if named else last
    return f"{found} …" if named and found != last else found
