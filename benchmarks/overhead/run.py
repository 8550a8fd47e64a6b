#!/usr/bin/env python3
"""What the probe costs a training: flatout, train-doctor and traceml-ai against the bare script, taking turns.

    python benchmarks/overhead/run.py                    # 7 rounds: about half an hour
    python benchmarks/overhead/run.py --quick            # a look of about a minute
    python benchmarks/overhead/run.py --output FILE.md   # the page for docs/measurements

Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shlex
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from added import Cost, cost
from event_cost import measure
from page import Conditions, Results, markdown
from runs import Cell, Reading, RunFailed, calibrate, run_rounds
from tools import BARE, TOOLS, Tool

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))
import rivals

import flatout
from flatout.machine.snapshot import take_snapshot

ROOT = Path(__file__).resolve().parents[2]
LEAST_STEPS = 20
VERSIONS = {"train-doctor": "0.2.0", "traceml-ai": "0.5.0"}


def main() -> int:
    """Measure and print; exit code 2 for options that cannot be used, 1 when the bare script fails."""
    options = _options()
    load = ", ".join(f"{load:.2f}" for load in os.getloadavg())
    environment = rivals.prepare(options.environment, VERSIONS)
    tools = [tool for tool in TOOLS if tool.package not in environment.missing]
    (ROOT / ".flatout").mkdir(exist_ok=True)
    # On the file system where runs are recorded by default, which may be slower than the one of temporary files.
    with tempfile.TemporaryDirectory(prefix="overhead-", dir=ROOT / ".flatout", ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        try:
            results = _measure(tools, options, environment, scratch)
        except RunFailed as failure:
            print(f"overhead: the bare training cannot be measured: {failure}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("overhead: interrupted; nothing is left running, and no page is written", file=sys.stderr)
            return 130
    page = markdown(_conditions(options, load, environment), results)
    print(page, end="")
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(page, encoding="utf-8")
    return 0


def _measure(tools: list[Tool], options: argparse.Namespace, environment: rivals.Environment, scratch: Path) -> Results:
    """Calibrate, then all cells.

    Raises:
        RunFailed: the calibration or a bare run failed: there is nothing to compare with.
    """
    not_measured = dict(environment.missing)
    costs: list[Cost] = []
    print("overhead: looking for the model's widths", file=sys.stderr, flush=True)
    widths = calibrate(environment.python, options.steps_ms, scratch)
    for step_ms, width in zip(options.steps_ms, widths, strict=True):
        for workers in options.workers:
            steps = max(LEAST_STEPS, round(options.seconds * 1000 / step_ms))
            cell = Cell(step_ms, workers, width, steps)
            readings, failed = run_rounds(tools, cell, options.rounds, environment.python, scratch)
            if BARE in failed:
                raise RunFailed(failed[BARE])
            for name, because in failed.items():
                not_measured[f"{name} at {step_ms:g} ms with {workers} workers"] = because
            costs += _costs(readings, tools, cell, failed)
    return Results(costs, measure(scratch), not_measured)


def _costs(readings: list[Reading], tools: list[Tool], cell: Cell, failed: dict[str, str]) -> list[Cost]:
    names = [tool.name for tool in tools if tool.name != BARE and tool.name not in failed]
    return [found for name in names if (found := cost(readings, name, cell)) is not None]


def _conditions(options: argparse.Namespace, load: str, environment: rivals.Environment) -> Conditions:
    machine = take_snapshot()
    there = {name: version for name, version in VERSIONS.items() if name not in environment.missing}
    versions = {"flatout": flatout.__version__, **there}
    versions |= {"torch": metadata.version("torch"), "Python": platform.python_version()}
    return Conditions(
        machine=machine.one_line(),
        processor=machine.cores.model or "not measured: the kernel does not name it",
        kernel=machine.kernel or "not measured",
        load=load,
        versions=versions,
        command=shlex.join(["python", "benchmarks/overhead/run.py", *sys.argv[1:]]),
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        rounds=options.rounds,
        seconds=options.seconds,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2 rounds of 1 s at 2 ms steps without workers")
    parser.add_argument("--rounds", type=int, metavar="N", help="how often each tool runs in each cell (default: 7)")
    parser.add_argument("--seconds", type=float, metavar="S", help="steps of about so long in each run (default: 3)")
    parser.add_argument("--steps-ms", type=float, nargs="+", metavar="MS", help="step times (default: 2 10 100)")
    parser.add_argument("--workers", type=int, nargs="+", metavar="N", help="num_workers (default: 0 2)")
    parser.add_argument("--output", type=Path, metavar="FILE.md", help="write the page there, too")
    parser.add_argument(
        "--environment",
        type=Path,
        default=ROOT / ".bench-venv",
        metavar="FOLDER",
        help="virtual environment of the rivals, made on first use (default: .bench-venv in the repository)",
    )
    options = parser.parse_args()
    quick = options.quick
    defaults = {
        "rounds": 2 if quick else 7,
        "seconds": 1.0 if quick else 3.0,
        "steps_ms": [2.0] if quick else [2.0, 10.0, 100.0],
        "workers": [0] if quick else [0, 2],
    }
    for name, default in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, default)
    for name in ("rounds", "seconds", "steps_ms"):
        value = getattr(options, name)
        if min(value if isinstance(value, list) else [value]) <= 0:
            parser.error(f"--{name.replace('_', '-')} is {value}, but must be above 0")
    if min(options.workers) < 0:
        parser.error(f"--workers is {options.workers}, but must be 0 or more")
    return options


if __name__ == "__main__":
    sys.exit(main())
