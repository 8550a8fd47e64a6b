"""One program: run bare, under the profiler, with its planted fault, and by ``flatout fix``; what each run shows."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import material
from programs import Meter, Places, Program

END_S = 60.0  # for a report after the training
PATIENCE_S = 240.0  # for a whole run: imports on a busy machine take most of it
WATCHED_S = 8.0  # of a training that does not end by itself, and of one with a planted fault


@dataclass
class Outcome:
    """What was found of one program. None: not measured; ``why`` says why nothing was."""

    name: str
    why: str | None = None
    unaccounted: float | None = None
    steps: int | None = None  # by flatout, the first one included
    own_steps: int | None = None
    step_s: float | None = None
    own_step_s: float | None = None
    losses: int | None = None  # printed
    same_losses: bool | None = None  # None: two runs without the probe differ already, or none is printed
    samples: int | None = None
    planted: list[str] = field(default_factory=list)  # causes of the planted run, first one first
    planted_share: float | None = None
    verdict: str = ""
    healthy: list[str] = field(default_factory=list)
    healthy_verdict: str = ""
    changed: list[str] | None = None  # files that ``fix`` changed
    fixed: str = ""  # how fix ended
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """As JSON keeps it."""
        return asdict(self)


def attempt(program: Program, places: Places, source: Path | None, folder: Path, budget_s: float) -> Outcome:
    """Run everything for one program in new folders below ``folder``."""
    outcome = Outcome(program.name)
    shutil.rmtree(folder, ignore_errors=True)
    bare: Meter | None = None
    if program.ends:
        code, text = _run(program, places, source, folder / "bare", False, None)
        bare = program.read(text)
        if code:
            outcome.why = f"it fails without flatout too (exit code {code}): {_last(text)}"
            return outcome
    options = ["--full"] if program.ends else ["--seconds", str(WATCHED_S)]
    code, text = _run(program, places, source, folder / "profiled", False, options)
    report = _report(folder / "profiled")
    if report is None:
        outcome.why = f"no report (exit code {code}): {_last(text)}"
        return outcome
    _measured(outcome, report, program.read(text))
    if bare is not None and bare.losses:
        outcome.losses = len(bare.losses)
        outcome.same_losses = bare.losses == program.read(text).losses
        if not outcome.same_losses:
            code, text = _run(program, places, source, folder / "bare again", False, None)
            if program.read(text).losses != bare.losses:
                outcome.same_losses = None
                outcome.notes.append("two runs without flatout have different losses, so that nothing is to compare")
    _run(program, places, source, folder / "planted", True, ["--seconds", str(WATCHED_S)])
    report = _report(folder / "planted")
    if report is None:
        outcome.notes.append("no report of the planted run")
    else:
        outcome.planted = [cause["id"] for cause in report["causes"]]
        outcome.planted_share = report["causes"][0]["share"] if report["causes"] else None
        outcome.verdict = report["verdict"]
    if budget_s:
        _fix(outcome, program, places, source, folder / "fix", budget_s)
    return outcome


def _measured(outcome: Outcome, report: dict[str, Any], meter: Meter) -> None:
    outcome.healthy = [cause["id"] for cause in report["causes"]]
    outcome.healthy_verdict = report["verdict"]
    ledger = report["ledger"]
    if ledger is None or not ledger["window_s"]:
        outcome.notes.append("no step was seen")
        return
    outcome.unaccounted = abs(ledger["unaccounted_s"]) / ledger["window_s"]
    outcome.steps = ledger["steps"]["count"] + 1
    outcome.samples = ledger["steps"]["samples"]
    outcome.own_steps, outcome.own_step_s = meter.steps, meter.step_s
    # What a program's mean leaves out, and its median does not meet.
    beside = sum(a["seconds"] for a in ledger["accounts"] if a["id"] in ("validation", "checkpoint"))
    mean_s = (ledger["window_s"] - beside) / max(ledger["steps"]["count"], 1)
    outcome.step_s = ledger["steps"]["median_s"] if meter.median else mean_s


def _fix(
    outcome: Outcome, program: Program, places: Places, source: Path | None, folder: Path, budget_s: float
) -> None:
    work = _lay_out(program, places, source, folder)
    before = [material.fingerprint(place) for place in (places.data, work)]
    command = [sys.executable, "-m", "flatout", "fix", "--budget", f"{budget_s:.0f}s", "--"]
    code, text = _execute(
        [*command, *_command(program, places, work, False)], program, places, work, budget_s + 120, False
    )
    after = [material.fingerprint(place) for place in (places.data, work)]
    outcome.changed = sorted({name for b, a in zip(before, after, strict=True) for name, _ in b.items() ^ a.items()})
    outcome.fixed = f"exit code {code}: {_last(text)}"


def _run(
    program: Program, places: Places, source: Path | None, folder: Path, planted: bool, options: list[str] | None
) -> tuple[int, str]:
    """A run with (``options`` given) or without the profiler; exit code and output."""
    work = _lay_out(program, places, source, folder)
    command = _command(program, places, work, planted)
    if options is not None:
        report = ["--output", str(folder / "report.json"), "--runs-dir", str(folder / "runs")]
        command = [
            sys.executable,
            "-m",
            "flatout",
            "profile",
            "--json",
            *([] if planted else ["--no-trace"]),
            *options,
            *report,
            "--",
            *command,
        ]
    return _execute(command, program, places, work, PATIENCE_S, planted)


def _lay_out(program: Program, places: Places, source: Path | None, folder: Path) -> Path:
    """A new folder to run in: of a script in a copy of its repository."""
    work = folder / "work"
    work.mkdir(parents=True)
    if source is not None:
        shutil.copytree(source, work / "source", symlinks=True)
        if program.inside:
            link, data = program.inside
            (work / "source" / link).symlink_to(places.data / data)
    return work


def _command(program: Program, places: Places, work: Path, planted: bool) -> list[str]:
    return [_filled(argument, work) for argument in program.command(places, planted)]


def _filled(text: str, work: Path) -> str:
    return text.replace("{work}", str(work)).replace("{source}", str(work / "source"))


def _execute(
    command: list[str], program: Program, places: Places, work: Path, limit_s: float, planted: bool
) -> tuple[int, str]:
    variables = {name: _filled(value, work) for name, value in program.environment(places, planted).items()}
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(work / "hub"),
        **variables,
    }
    inside = work / "source" if program.inside else work
    with subprocess.Popen(
        command,
        cwd=inside,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            text, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                text, _ = process.communicate(timeout=END_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                text, _ = process.communicate()
    (work.parent / "output.txt").write_text(text)
    return process.returncode, text.replace("\r", "\n")


def _report(folder: Path) -> dict[str, Any] | None:
    try:
        report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    except (OSError, ValueError):
        return None
    return report


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it printed nothing"
