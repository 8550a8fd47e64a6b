#!/usr/bin/env python3
"""Image loaders side by side: the same crops by flatout, torch's DataLoader, DALI, SPDL, webdataset, litdata and more.

    python benchmarks/loader/run.py                    # 5 rounds: about 25 minutes
    python benchmarks/loader/run.py --quick            # flatout, DataLoader and DALI: 3 minutes
    python benchmarks/loader/run.py --output FILE.md   # the page for docs/measurements

Loaders take turns, each in a process of its own. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from loaders import BATCH, DALI, FLATOUT, LIMIT, LOADERS, SIZE, USERS
from photographs import SETS, make, mean_bytes

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))
import rivals
from conditions import head

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
VERSIONS = {
    "nvidia-dali-cuda130": "2.4.0",
    "spdl": "0.8.0",
    "webdataset": "1.0.2",
    "litdata": "0.2.76",
    "datasets": "5.2.0",
    "grain": "0.2.18",
}
RUN_WITHIN_S = 180
MEMORY_WORKERS = (2, 4, 8)
Runs = dict[str, list[dict[str, Any]]]


def main() -> int:
    """Measure and print."""
    options = _options()
    environment = rivals.prepare(options.environment, VERSIONS)
    lines: list[str] = []
    failed: dict[str, str] = {}
    for name in options.sets:
        root = make(SETS[name], options.data)
        wanted = [one for one in options.loaders if LOADERS[one].package not in environment.missing]
        if name != "large":
            wanted = [one for one in wanted if "scaled" not in one]
        made: Runs = {one: [] for one in wanted}
        for number in range(options.rounds):
            for one in wanted[number % len(wanted) :] + wanted[: number % len(wanted)]:
                found = _run(environment.python, one, root, options.workers, options.seconds)
                if isinstance(found, str):
                    failed[f"{one}, {name}"] = found
                else:
                    made[one].append(found)
                print(f"loader: {name}, round {number + 1} of {options.rounds}, {one}", file=sys.stderr, flush=True)
        about = f"{SETS[name].about}, mean {mean_bytes(root) / 1e3:.0f} KB, {options.workers} threads or processes"
        lines += [f"## {name.capitalize()}: {about}", "", *_table(made), ""]
        if name == "ordinary":
            lines += ["## Goals", "", *_goals(made), ""]
    lines += _memory(environment.python, options)
    page = "\n".join([*_head(options), *lines, *_failures({**environment.missing, **failed})])
    print(page)
    if options.output:
        options.output.write_text(page + "\n", "utf-8")
    return 0


def _run(python: str, loader: str, root: Path, workers: int, seconds: float) -> dict[str, Any] | str:
    """One loader once; why, if it failed."""
    command = [python, str(HERE / "one_run.py"), loader, str(root), str(workers), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_WITHIN_S, env=environment, cwd=HERE)
    except subprocess.TimeoutExpired:
        return f"longer than {RUN_WITHIN_S} s"
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return (done.stderr.strip().splitlines() or ["no output"])[-1][:200]
    found: dict[str, Any] = json.loads(lines[-1])
    found["cpu_ms"] = 1e3 * found["cpu_s"] / found["images"]
    found["rate"] = found["images"] / found["wall_s"]
    return found


def _median(runs: list[dict[str, Any]], key: str) -> float:
    return statistics.median(one[key] for one in runs)


def _ratios(made: Runs, other: str, key: str, inverse: bool = False) -> list[float]:
    """Our gain over another, round by round: above 1, flatout is ahead."""
    pairs = zip(made[FLATOUT], made[other], strict=False)
    return [ours[key] / theirs[key] if inverse else theirs[key] / ours[key] for ours, theirs in pairs]


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def _table(made: Runs) -> list[str]:
    lines = [
        "| loader | CPU ms/image | images/s | flatout ahead: CPU | images/s | of bare decode | MiB | MAD |",
        "|---|---|---|---|---|---|---|---|",
    ]
    limit = made.get(LIMIT)
    ranked = sorted((name for name in made if made[name]), key=lambda name: _median(made[name], "cpu_ms"))
    for name in ranked:
        runs = made[name]
        bare = f"{_median(limit, 'cpu_ms') / _median(runs, 'cpu_ms'):.2f}" if limit else "not measured"
        ahead = [_spread(_ratios(made, name, "cpu_ms")), _spread(_ratios(made, name, "rate", inverse=True))]
        if name in (FLATOUT, LIMIT):
            ahead = ["", ""]
        difference = "" if runs[0]["difference"] is None else f"{_median(runs, 'difference'):.2f}"
        lines.append(
            f"| {name} | {_median(runs, 'cpu_ms'):.2f} | {_median(runs, 'rate'):.0f} | {ahead[0]} | {ahead[1]} "
            f"| {bare} | {_median(runs, 'memory_mib'):.0f} | {difference} |"
        )
    return lines


def _goals(made: Runs) -> list[str]:
    """Each goal with what was measured, met or not."""
    lines = ["| goal | measured | |", "|---|---|---|"]
    for other, least in ((USERS, 2.0), (DALI, 0.95)):
        if not made.get(other):
            lines.append(f"| at least {least:.2f} x {other} | not measured | |")
            continue
        for key, what in (("cpu_ms", "CPU"), ("rate", "images/s")):
            found = statistics.median(_ratios(made, other, key, inverse=key == "rate"))
            lines.append(
                f"| at least {least:.2f} x {other}, {what} | {found:.2f} | {'met' if found >= least else 'NOT met'} |"
            )
    for name in made:
        if LOADERS[name].package and name != DALI and made[name]:
            found = statistics.median(_ratios(made, name, "cpu_ms"))
            lines.append(f"| ahead of {name}, CPU | {found:.2f} | {'met' if found > 1 else 'NOT met'} |")
    return lines


def _memory(python: str, options: argparse.Namespace) -> list[str]:
    """Memory at several numbers of workers: the interpreter with torch is in it."""
    root = make(SETS["ordinary"], options.data)
    lines = ["## Memory by workers (MiB, proportional set size of all processes)", ""]
    lines += [f"| loader | {' | '.join(str(n) for n in MEMORY_WORKERS)} |", "|---|" + "---|" * len(MEMORY_WORKERS)]
    for name in (FLATOUT, "torchvision + Pillow + DataLoader, uint8", USERS):
        cells = []
        for workers in MEMORY_WORKERS:
            found = _run(python, name, root, workers, options.seconds)
            cells.append(found if isinstance(found, str) else f"{found['memory_mib']:.0f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, ""]


def _head(options: argparse.Namespace) -> list[str]:
    return [
        *head(
            "Image loaders side by side",
            "benchmarks/loader/run.py",
            ("flatout", "torch", "torchvision", "pillow"),
            VERSIONS,
        ),
        f"- Crops {SIZE} x {SIZE} from random boxes, the same for all; batches of {BATCH}; warm cache; "
        f"{options.rounds} rounds of {options.seconds:g} s, taking turns; start-up and the first batches left out.",
        "- Ratios are of the same round: median (least-most). CPU time is that of all processes of a loader.",
        "- MAD: mean absolute difference (of 255) to Pillow's antialiased crop of the same box. MiB: all processes.",
        "- 'of bare decode': CPU time of libjpeg-turbo's full decode and nothing else, over the loader's.",
        "",
    ]


def _failures(missing: dict[str, str]) -> list[str]:
    return ["## Not measured", "", *(f"- {name}: {because}" for name, because in missing.items())] if missing else []


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2 rounds, the ordinary set, three loaders and the limit")
    parser.add_argument("--rounds", type=int, metavar="N", help="how often each loader runs (default: 5)")
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="of each run (default: 3)")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="threads or processes (default: 2)")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), help="data sets (default: all)")
    parser.add_argument("--loaders", nargs="+", choices=list(LOADERS), help="loaders (default: all)")
    parser.add_argument("--data", type=Path, default=ROOT / ".flatout/benchmark-images", metavar="FOLDER")
    parser.add_argument("--output", type=Path, metavar="FILE.md", help="write the page there, too")
    parser.add_argument("--environment", type=Path, default=ROOT / ".bench-venv", metavar="FOLDER")
    options = parser.parse_args()
    quick = options.quick
    options.rounds = options.rounds or (2 if quick else 5)
    options.sets = options.sets or (["ordinary"] if quick else list(SETS))
    options.loaders = options.loaders or ([USERS, FLATOUT, DALI, LIMIT] if quick else list(LOADERS))
    if options.rounds < 1 or options.seconds <= 0 or options.workers < 1:
        parser.error("--rounds, --seconds and --workers must be above 0")
    if FLATOUT not in options.loaders:
        parser.error(f"--loaders: {FLATOUT} must be among them: the ratios are to it")
    return options


if __name__ == "__main__":
    sys.exit(main())
