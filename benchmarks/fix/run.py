#!/usr/bin/env python3
"""What ``fix`` gives and costs, beside train-doctor's: final speed-up, time, and what was kept wrongly.

Each tool gets the same unmodified script. What it says of itself is listed; what it kept is then measured in pairs of
its own, the same way for both, where it can be put into the script.

Usage: python benchmarks/fix/run.py [--scripts NAME ...] [--budget TIME] [--output FILE]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(HERE.parent / "shared")]

from asking import FLATOUT, RIVAL, RIVAL_VERSION, Fixed, fix  # noqa: E402
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


@dataclass(frozen=True)
class Row:
    """One tool on one script."""

    script: str
    fixed: Fixed


def main() -> None:
    """Run both tools on all scripts, in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scripts", nargs="*", default=list(SCRIPTS), help="only these")
    parser.add_argument("--budget", default="3m", help="of flatout")
    parser.add_argument("--output", type=Path, help="a Markdown page")
    options = parser.parse_args()
    environment = prepare(ROOT / "build" / "diagnosis" / "rivals", {RIVAL: RIVAL_VERSION})
    rows = []
    for name in options.scripts:
        for tool in (FLATOUT, RIVAL):
            if tool in environment.missing:
                continue
            with tempfile.TemporaryDirectory() as folder:
                script = [str(PLANTED / f"{name}.py")]
                found = fix(tool, environment.python, script, Path(folder), budget=options.budget, threads=1)
            rows.append(Row(name, found))
            print(rows[-1], file=sys.stderr, flush=True)
    text = page(rows, options.budget, environment.missing)
    if options.output:
        options.output.write_text(text)
    print(text)


def page(rows: list[Row], budget: str, missing: dict[str, str]) -> str:
    """Markdown."""
    packages = ("flatout", "torch")
    lines = [
        *head("What fix gives and costs", "benchmarks/fix/run.py", packages, {} if missing else {RIVAL: RIVAL_VERSION}),
        f"- The scripts are those of tests/end_to_end/planted. flatout has a budget of {budget}; {RIVAL} its defaults "
        "(up to 4 candidates, 5 pairs each). Each speed-up is the tool's own figure, of its own pairs of runs.",
        *(f"- {name} could not be compared: {why}" for name, why in missing.items()),
        "",
        "| script | what is known | tool | speed-up | kept | minutes |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        one = row.fixed
        speedup = f"{one.speedup:.2f}x" if one.speedup is not None else "nothing kept"
        kept = "; ".join(one.kept) or one.note or "-"
        lines.append(
            f"| {row.script} | {SCRIPTS[row.script]} | {one.tool} | {speedup} | {kept} | {one.wall_s / 60:.1f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
