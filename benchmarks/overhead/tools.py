"""How the training is started bare and under each tool, and how one sees that the tool recorded it to the end."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flatout.runner.live import LiveReader

BARE = "bare"
CONTROL = "bare, again"
FLATOUT = "flatout"
UNBOUNDED_STEPS = 1_000_000_000


@dataclass(frozen=True)
class Tool:
    """One way to run the training.

    Attributes:
        name: As in the tables.
        how: How it is started, for the reader.
        package: The distribution to compare, None for the bare script and for flatout.
        command: From interpreter, training script with arguments, and the folder for records, the command.
        recorded_steps: Steps in the record that it left in that folder; None where nothing records.
    """

    name: str
    how: str
    package: str | None
    command: Callable[[str, list[str], Path], list[str]]
    recorded_steps: Callable[[Path], int] | None


def _bare(python: str, script: list[str], folder: Path) -> list[str]:
    return [python, *script]


def _flatout(python: str, script: list[str], folder: Path) -> list[str]:
    options = ["--full", "--no-trace", "--quiet", "--runs-dir", str(folder)]
    return [sys.executable, "-m", "flatout", "profile", *options, "--", python, *script]


def _flatout_steps(folder: Path) -> int:
    steps = 0
    for run in folder.glob("*/run.json"):
        steps += LiveReader(run.parent).read().steps
    return steps


def _train_doctor(python: str, script: list[str], folder: Path) -> list[str]:
    bounds = ["--steps", str(UNBOUNDED_STEPS), "--seconds", "0", "--profiler-steps", "0"]
    return [python, "-m", "train_doctor", "profile", *bounds, "--out", str(folder), "--", python, *script]


def _train_doctor_steps(folder: Path) -> int:
    records = folder.glob("*/events.*.jsonl")
    return sum(json.loads(line).get("type") == "step" for path in records for line in path.read_text().splitlines())


def _traceml(python: str, script: list[str], folder: Path) -> list[str]:
    ports = ["--aggregator-port", str(_free_port()), "--master-port", str(_free_port())]
    start = [python, "-m", "traceml_ai.launcher.cli", "run", script[0], "--logs-dir", str(folder), *ports]
    return [*start, "--args", *script[1:], "--traceml"]


def _traceml_steps(folder: Path) -> int:
    summaries = [json.loads(path.read_text()) for path in folder.glob("*/final_summary.json")]
    return sum(summary["step_time"]["metadata"]["training_total_steps"] for summary in summaries)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


TOOLS = (
    Tool(BARE, "`python training.py`", None, _bare, None),
    Tool(FLATOUT, "`flatout profile --full --no-trace --quiet -- python training.py`", None, _flatout, _flatout_steps),
    Tool(
        "train-doctor",
        "`train-doctor profile --steps 1000000000 --seconds 0 --profiler-steps 0 -- python training.py`: no change of "
        "code; its bounds are set out of reach, because by itself it ends the training after 50 steps and 2 s",
        "train-doctor",
        _train_doctor,
        _train_doctor_steps,
    ),
    Tool(
        "traceml-ai",
        "`traceml run training.py` in its default mode; it sees the steps of a plain loop only with code, so the "
        'smallest that it documents was added: `traceml_ai.init(mode="auto")` and `with traceml_ai.trace_step(model):`',
        "traceml-ai",
        _traceml,
        _traceml_steps,
    ),
    Tool(
        CONTROL, "the bare script once more in each round: what a difference of nothing looks like", None, _bare, None
    ),
)
