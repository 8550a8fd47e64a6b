#!/usr/bin/env python3
"""What a person sees who profiles by hand: torch.profiler's table of five steps of each planted script of a set.

A reader who has only these tables then names causes (ids of `flatout explain`) in a YAML file, script: [first, second,
third], and this scores them.

    python benchmarks/diagnosis/profiler_tables.py --set unseen4 --tables FOLDER
    python benchmarks/diagnosis/profiler_tables.py --set unseen4 --answers FILE
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import material
import scenarios
import yaml
from prepared import prepared
from scenarios import ORIGINAL

ROOT = Path(__file__).resolve().parent.parent.parent
PROFILED = """
import os, runpy, sys, time
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

FIRST, STEPS = 10, 5
seen, profile, began = [0], [None], [0.0]

def stepped(*_):
    seen[0] += 1
    if seen[0] == FIRST:
        profile[0] = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
        profile[0].start()
        began[0] = time.perf_counter()
    elif seen[0] == FIRST + STEPS:
        took_s = time.perf_counter() - began[0]
        profile[0].stop()
        table = profile[0].key_averages().table(
            sort_by="self_cpu_time_total", row_limit=15, max_name_column_width=60, top_level_events_only=False
        )
        sys.__stdout__.write("PROFILED\\n%d steps in %.3f s\\n%s\\n" % (STEPS, took_s, table))
        sys.__stdout__.flush()
        os._exit(0)

register_optimizer_step_post_hook(stepped)
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def main() -> None:
    """Make the tables, or score answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="unseen4", help="of the scripts")
    parser.add_argument("--tables", type=Path, metavar="FOLDER", help="make the tables there")
    parser.add_argument("--answers", type=Path, metavar="FILE", help="score these answers")
    parser.add_argument("--python", default=str(ROOT / "build" / "diagnosis" / "rivals" / "bin" / "python"))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    planted = [one for one in scenarios.load(options.set) if not one.healthy]
    if options.tables:
        sets = material.make(ROOT / "build" / "diagnosis" / "data")
        options.tables.mkdir(parents=True, exist_ok=True)
        launcher = options.tables / "profiled.py"
        launcher.write_text(PROFILED)
        for scenario in planted:
            target = options.tables / f"{scenario.name}.txt"
            if not target.exists():
                target.write_text(_table(scenario, options, sets, launcher))
                print(target, file=sys.stderr, flush=True)
    if options.answers:
        print(score(planted, yaml.safe_load(options.answers.read_text())))


def _table(scenario: scenarios.Scenario, options: argparse.Namespace, sets: dict[str, str], launcher: Path) -> str:
    with prepared(scenario, options.seed, ORIGINAL, sets) as (command, work):
        words = [options.python, str(launcher.resolve()), *command]
        try:
            done = subprocess.run(words, cwd=work, capture_output=True, text=True, timeout=300, check=False)
        except subprocess.TimeoutExpired:
            return "no table: no 15 steps within five minutes\n"
    _, found, table = done.stdout.partition("PROFILED\n")
    return table if found else f"no table: {done.stderr[-500:]}\n"


def score(planted: list[scenarios.Scenario], answers: dict[str, list[str]]) -> str:
    """One line each, and the sums."""
    first = three = 0
    lines = []
    for one in planted:
        given, right = answers.get(one.name) or [], (one.cause, *one.also)
        first += bool(given) and given[0] in right
        three += any(cause in right for cause in given[:3])
        lines.append(f"{one.name}: planted {one.cause}; named {', '.join(given) or 'nothing'}")
    lines.append(f"first {first} of {len(planted)}, among three {three} of {len(planted)}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
