"""Single runs of the training, and the rounds in which the tools take turns."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from tools import Tool

TRAINING = Path(__file__).with_name("training.py")
START_WITHIN_S = 120.0
END_WITHIN_S = 15.0


@dataclass(frozen=True)
class Cell:
    """One setting of the benchmark: a nominal step time, calibrated to a width, and the loader's workers."""

    step_ms: float
    workers: int
    width: int
    steps: int


@dataclass(frozen=True)
class Reading:
    """What one run of the training measured of itself, and the record that the tool left."""

    tool: str
    cell: Cell
    round: int
    median_s: float
    mean_s: float
    cpu_s: float  # of the training process, a step
    peak_rss_bytes: int | None
    record_bytes: int


class RunFailed(Exception):
    """A run that cannot be used, and why."""


def order(tools: Sequence[Tool], round_number: int) -> list[Tool]:
    """Forwards in even rounds, backwards in odd ones, so that a drift of the machine falls on all alike.

    Every two rounds another tool begins: none is always next to the bare run in time.
    """
    first = round_number // 2 % len(tools)
    turned = [*tools[first:], *tools[:first]]
    return turned if round_number % 2 == 0 else turned[::-1]


def calibrate(python: str, steps_ms: Sequence[float], scratch: Path) -> list[int]:
    """Widths of the model at which a bare step takes about so long on this machine.

    Raises:
        RunFailed: the training script failed.
    """
    output = scratch / "widths.json"
    wanted = [f"{step_ms:g}" for step_ms in steps_ms]
    command = [python, str(TRAINING), "--calibrate", *wanted, "--output", str(output)]
    _run(command, scratch, START_WITHIN_S + sum(steps_ms))
    widths: list[int] = json.loads(output.read_text())
    return widths


def run_once(tool: Tool, cell: Cell, round_number: int, python: str, scratch: Path) -> Reading:
    """Run the training under one tool in a folder of its own, which is removed afterwards.

    Raises:
        RunFailed: the run failed, took too long, or the tool did not record all steps.
    """
    with tempfile.TemporaryDirectory(dir=scratch, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        output, record = folder / "result.json", folder / "record"
        record.mkdir()
        numbers = ["--width", str(cell.width), "--workers", str(cell.workers), "--steps", str(cell.steps)]
        script = [str(TRAINING), *numbers, "--output", str(output)]
        _run(tool.command(python, script, record), folder, START_WITHIN_S + 20 * cell.steps * cell.step_ms / 1000)
        if not output.exists():
            raise RunFailed("the training wrote no result: it was ended before its last step")
        result = json.loads(output.read_text())
        if tool.recorded_steps is not None:
            recorded = tool.recorded_steps(record)
            if recorded < result["steps"]:
                raise RunFailed(f"it recorded {recorded} of {result['steps']} steps: its cost would not be the whole")
        size = sum(path.stat().st_size for path in record.rglob("*") if path.is_file())
        return Reading(
            tool=tool.name,
            cell=cell,
            round=round_number,
            median_s=result["median_s"],
            mean_s=result["mean_s"],
            cpu_s=result["cpu_s"],
            peak_rss_bytes=result["peak_rss_bytes"],
            record_bytes=size,
        )


def _run(command: list[str], folder: Path, within_s: float) -> None:
    log = folder / "output.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        with _ended_in_any_case(process):
            try:
                code = process.wait(within_s)
            except subprocess.TimeoutExpired:
                raise RunFailed(f"it had not ended after {within_s:.0f} s") from None
    if code:
        lines = log.read_text(errors="replace").strip().splitlines()
        raise RunFailed(f"it ended with exit code {code}: {lines[-1].strip() if lines else 'no output'}")


@contextlib.contextmanager
def _ended_in_any_case(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave no process behind: the tool is asked to end, then what is left of its tree is killed."""
    try:
        yield
    finally:
        if process.poll() is None:
            tree = psutil.Process(process.pid).children(recursive=True)
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_WITHIN_S)
            process.kill()
            process.wait()
            for child in tree:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()


def run_rounds(
    tools: Sequence[Tool], cell: Cell, rounds: int, python: str, scratch: Path
) -> tuple[list[Reading], dict[str, str]]:
    """Let the tools take turns; one that fails is left out from then on.

    Returns:
        The readings, and for each tool that failed the reason.
    """
    readings: list[Reading] = []
    failed: dict[str, str] = {}
    for round_number in range(rounds):
        for tool in order(tools, round_number):
            if tool.name in failed:
                continue
            try:
                reading = run_once(tool, cell, round_number, python, scratch)
            except RunFailed as failure:
                failed[tool.name] = str(failure)
                continue
            readings.append(reading)
            place = f"{cell.step_ms:g} ms, {cell.workers} workers, round {round_number + 1} of {rounds}"
            print(f"overhead: {place}: {tool.name}: median step {reading.median_s * 1e3:.3f} ms", file=sys.stderr)
    return readings, failed
