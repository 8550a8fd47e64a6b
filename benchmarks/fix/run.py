#!/usr/bin/env python3
"""What ``fix`` gives and costs, beside train-doctor's: final speed-up, time, and what was kept wrongly.

Each tool gets the same unmodified script. What it says of itself is listed; what it kept is then measured in pairs of
its own, the same way for both, where it can be put into the script.

Usage: python benchmarks/fix/run.py [--scripts NAME ...] [--budget TIME] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "shared"))

from conditions import head  # noqa: E402
from rivals import prepare  # noqa: E402

PLANTED = ROOT / "tests" / "end_to_end" / "planted"
# name -> what is known of it
SCRIPTS = {
    "one_worker_for_a_slow_service": "one worker waits 10 ms for each sample",
    "short_epochs": "workers are started anew for every short pass",
    "fetching_in_the_training_process": "num_workers is 0, and both cores are used already",
    "one_archive_for_all": "workers wait for one lock: more of them give nothing",
    "nothing_wrong": "healthy: whatever is kept is kept wrongly",
}
VERSION = "0.2.0"
RIVAL = "train-doctor"


@dataclass(frozen=True)
class Row:
    """One tool on one script.

    Attributes:
        script: its name.
        tool: "flatout" or RIVAL.
        speedup: as the tool says; None: it kept nothing.
        kept: titles.
        wall_s: that it took.
        note: what went wrong.
    """

    script: str
    tool: str
    speedup: float | None
    kept: tuple[str, ...]
    wall_s: float
    note: str = ""


def main() -> None:
    """Run both tools on all scripts, in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scripts", nargs="*", default=list(SCRIPTS), help="only these")
    parser.add_argument("--budget", default="3m", help="of flatout")
    parser.add_argument("--output", type=Path, help="a Markdown page")
    options = parser.parse_args()
    environment = prepare(ROOT / "build" / "diagnosis" / "rivals", {RIVAL: VERSION})
    rows = []
    for name in options.scripts:
        for tool in (_flatout, _rival):
            if tool is _rival and RIVAL in environment.missing:
                continue
            rows.append(tool(name, options.budget, environment.python))
            print(rows[-1], file=sys.stderr, flush=True)
    text = page(rows, options.budget, environment.missing)
    if options.output:
        options.output.write_text(text)
    print(text)


def _flatout(name: str, budget: str, python: str) -> Row:
    found, wall_s, note = _asked(
        [sys.executable, "-m", "flatout", "fix", "--budget", budget, "--json", "--quiet", "--", python], name
    )
    if found is None:
        return Row(name, "flatout", None, (), wall_s, note)
    proof = found["proof"]
    kept = tuple(trial["title"] for trial in found["kept"])
    return Row(name, "flatout", proof["speedup"] if proof and kept else None, kept, wall_s)


def _rival(name: str, budget: str, python: str) -> Row:
    program = Path(python).parent / RIVAL
    found, wall_s, note = _asked([str(program), "fix", "--json", "--quiet", "--no-card", "--", python], name)
    if found is None:
        return Row(name, RIVAL, None, (), wall_s, note)
    speedup, kept = _said(found)
    return Row(name, RIVAL, speedup, kept, wall_s)


def _said(found: dict[str, Any]) -> tuple[float | None, tuple[str, ...]]:
    """What train-doctor kept, and its own figure for the whole."""
    proven = found.get("proven")
    if not proven:
        return None, ()
    return float(proven["ratio"]["point"]), (str(proven["describe"]),)


def _asked(command: list[str], name: str) -> tuple[dict[str, Any] | None, float, str]:
    with tempfile.TemporaryDirectory() as folder:
        begin_s = time.monotonic()
        done = subprocess.run(
            [*command, str(PLANTED / f"{name}.py")],
            cwd=folder, capture_output=True, text=True, check=False, timeout=1800,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        wall_s = time.monotonic() - begin_s
    try:
        return json.loads(done.stdout[done.stdout.index("{") :]), wall_s, ""
    except ValueError:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return None, wall_s, lines[-1][:120] if lines else f"exit code {done.returncode}"


def page(rows: list[Row], budget: str, missing: dict[str, str]) -> str:
    """Markdown."""
    packages = ("flatout", "torch")
    lines = [
        *head("What fix gives and costs", "benchmarks/fix/run.py", packages, {} if missing else {RIVAL: VERSION}),
        f"- The scripts are those of tests/end_to_end/planted. flatout has a budget of {budget}; {RIVAL} its defaults "
        "(up to 4 candidates, 5 pairs each). Each speed-up is the tool's own figure, of its own pairs of runs.",
        *(f"- {name} could not be compared: {why}" for name, why in missing.items()),
        "",
        "| script | what is known | tool | speed-up | kept | minutes |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        speedup = f"{row.speedup:.2f}x" if row.speedup is not None else "nothing kept"
        kept = "; ".join(row.kept) or row.note or "-"
        known = SCRIPTS[row.script]
        lines.append(f"| {row.script} | {known} | {row.tool} | {speedup} | {kept} | {row.wall_s / 60:.1f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
