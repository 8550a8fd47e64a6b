"""One clear line for a recording in which no training step was seen."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from flatout.recording.live import what_was_seen
from flatout.recording.session import Outcome


def explain(outcome: Outcome) -> tuple[str, int]:
    """What to say, and the exit code to end with."""
    processes = _processes(outcome.run)
    if outcome.stop == "failed":
        code = outcome.exit_code or 1
        exception = _exception(processes)
        if exception and "No module named 'torch'" in exception["exception"]:
            python = exception["executable"]
            return f"no torch in {python}: install it there, or put the interpreter that has it after `--`", code
        ended = f"signal {code - 128}" if code > 128 else f"exit code {code}"
        message = f"the command failed ({ended}) before its first training step"
        if exception:
            return f"{message}: {exception['exception']}{_place(exception)}", code
        return f"{message}; its own messages are above", code
    seen = what_was_seen(outcome.run, outcome.live)
    if outcome.stop in ("interrupted", "terminated"):
        return f"ended before the first training step: {seen}", 130 if outcome.stop == "interrupted" else 143
    if outcome.exit_code == 0:
        return f"the command ended without a training step: {seen}", 2
    return (
        f"no training step was seen in time: {seen}; give it longer with --first-step-within, or check the command",
        2,
    )


def _place(exception: dict[str, Any]) -> str:
    """The innermost line that the traceback names, as `` (file:line)``."""
    found = re.findall(r'File "(.+?)", line (\d+)', "\n".join(exception["traceback"]))
    return f" ({found[-1][0]}:{found[-1][1]})" if found else ""


def _processes(run: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted((run / "processes").glob("*.json")):
        try:
            found.append(json.loads(path.read_bytes()))
        except (OSError, ValueError):
            continue
    return found


def _exception(processes: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The exception that ended the last process to fail."""
    for process in sorted(processes, key=lambda process: process.get("end_ns") or 0, reverse=True):
        exit_ = process.get("exit") or {}
        if exit_.get("exception"):
            return {**exit_, "executable": process.get("executable")}
    return None
