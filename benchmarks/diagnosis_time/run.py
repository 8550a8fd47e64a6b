#!/usr/bin/env python3
"""How long a diagnosis takes: on the hand-made runs of the tests, and on records of many steps.

CPU seconds of one process, each round in a new one, after one warm-up diagnosis of the same run. With --before, rounds
of another checkout and of this one alternate.

Usage: python benchmarks/diagnosis_time/run.py [--steps N ...] [--rounds N] [--record RUN ...] [--no-views]
       [--before CHECKOUT] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(HERE.parent / "shared"), str(ROOT)]

from conditions import head  # noqa: E402
from record import lay_down  # noqa: E402

Figures = dict[str, tuple[float, int]]  # case -> (CPU seconds, fits)


def one_round(checkout: Path, views: bool, records: list[Path]) -> Figures:
    """Time every case once, with the source and the tests of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, str(HERE / "one_round.py"), str(int(views)), *map(str, records)]
    done = subprocess.run(command, cwd=checkout, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return {name: (seconds, fits) for name, (seconds, fits) in json.loads(done.stdout).items()}


def median_s(rounds: list[Figures], name: str) -> float:
    """CPU seconds of one case."""
    return statistics.median(each[name][0] for each in rounds)


def page(rounds: list[Figures], before: list[Figures]) -> list[str]:
    """Medians, least and most, case by case."""
    lines = [
        f"- CPU seconds of one process, n = {len(rounds)} rounds: median (least to most). The rounds of both versions "
        "alternated."
        if before
        else f"- CPU seconds of one process, n = {len(rounds)} rounds: median (least to most).",
        "- *rules and predictions*: from the measured run to causes, remedies and plans, without reading the record.",
        "",
        *(["| run | before | fits | after | fits | times less |", "|---|---|---|---|---|---|"] if before else ()),
        *(["| run | CPU time | fits |", "|---|---|---|"] if not before else ()),
    ]
    for name in rounds[0]:
        cells = [name]
        for found in (before, rounds) if before else (rounds,):
            seconds = [each[name][0] for each in found]
            spread = f"{1e3 * min(seconds):,.0f} to {1e3 * max(seconds):,.0f}"
            cells += [f"{1e3 * median_s(found, name):,.0f} ms ({spread})", str(found[0][name][1])]
        if before:
            cells.append(f"{median_s(before, name) / median_s(rounds, name):.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> int:
    """Measure, print the page, and write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, nargs="*", default=[1_000, 100_000], help="of the records to lay down")
    parser.add_argument("--no-views", dest="views", action="store_false", help="only records, no hand-made runs")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--record", type=Path, nargs="*", default=[], help="recorded runs to diagnose as well")
    parser.add_argument("--before", type=Path, help="another checkout, to compare with")
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="diagnosis-time-") as folder:
        records = [lay_down(Path(folder), steps) for steps in asked.steps] + [each.resolve() for each in asked.record]
        before, rounds = [], []
        for number in range(asked.rounds):
            print(f"round {number + 1} of {asked.rounds}", file=sys.stderr, flush=True)
            if asked.before:
                before.append(one_round(asked.before.resolve(), asked.views, records))
            rounds.append(one_round(ROOT, asked.views, records))
    text = head("How long a diagnosis takes", "benchmarks/diagnosis_time/run.py", ["flatout", "numpy"], {})
    text = "\n".join([*text, *page(rounds, before), ""])
    print(text)
    if asked.output:
        asked.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
