#!/usr/bin/env python3
"""What ``fix`` wins on the scripts of benchmarks/diagnosis, beside what their authors' own repairs give.

    python benchmarks/fix/scripts.py --set unseen4                     # identical remedies only
    python benchmarks/fix/scripts.py --set unseen4 --allow numerics --allow data --allow optimisation
    python benchmarks/fix/scripts.py --set unseen4 --rivals --output docs/measurements/fix-unseen.md

Each answer is written to --results at once; what is there is not run again. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "diagnosis"), str(HERE.parent / "shared")]

import material  # noqa: E402
from asking import FLATOUT, RIVAL, RIVAL_VERSION, Fixed, fix  # noqa: E402
from conditions import head  # noqa: E402
from prepared import prepared  # noqa: E402
from rivals import prepare  # noqa: E402
from scenarios import ORIGINAL, Scenario, load  # noqa: E402
from scoring import gains, read  # noqa: E402

PACKAGES = {"pandas": "3.1.1", "h5py": "3.16.0", "scikit-learn": "1.9.1"}
SEED = 1


def main() -> None:
    """Fix what is missing, print what was won."""
    options = _options()
    chosen = [
        one
        for one in load(options.set)
        if not one.ranks and (not options.only or any(part in one.name for part in options.only))
    ]
    tools = [FLATOUT, *([RIVAL] if options.rivals else [])]
    found = _read(options.results)
    classes = ",".join(sorted(options.allow))
    missing = [(one, tool) for one in chosen for tool in tools if (one.name, tool, _with(tool, classes)) not in found]
    if missing:
        packages = PACKAGES | ({RIVAL: RIVAL_VERSION} if options.rivals else {})
        environment = prepare(options.folder / "rivals", packages)
        sets = material.make(options.folder / "data")
        for number, (scenario, tool) in enumerate(missing, 1):
            if tool in environment.missing:
                continue
            with prepared(scenario, SEED, ORIGINAL, sets) as (script, work):
                fixed = fix(
                    tool, environment.python, script, work, budget=options.budget, allow=options.allow, threads=0
                )
            key = (scenario.name, tool, _with(tool, classes))
            found[key] = fixed
            _append(options.results, key, fixed)
            print(f"[{number}/{len(missing)}] {scenario.name}: {fixed}", file=sys.stderr, flush=True)
    rows = {(name, tool): fixed for (name, tool, allowed), fixed in found.items() if allowed == _with(tool, classes)}
    text = page(chosen, tools, rows, options, _repairs(options.diagnosed, chosen))
    if options.output:
        options.output.write_text(text)
    print(text)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="unseen4", help="of benchmarks/diagnosis (default: %(default)s)")
    parser.add_argument("--only", nargs="+", default=[], metavar="PART", help="scripts whose names hold one of these")
    parser.add_argument("--budget", default="3m", help="of flatout, each script (default: 3m)")
    parser.add_argument("--allow", action="append", default=[], help="class of remedies besides identical ones")
    parser.add_argument("--rivals", action="store_true", help=f"ask {RIVAL} too")
    parser.add_argument("--diagnosed", type=Path, metavar="FILE", help="results of diagnosis/run.py --fixes")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "diagnosis", help="for data and rivals")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "fix" / "results.jsonl", metavar="FILE")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write a Markdown page")
    return parser.parse_args()


def _with(tool: str, classes: str) -> str:
    """The classes of remedies that were allowed; the rival knows none."""
    return classes if tool == FLATOUT else ""


Key = tuple[str, str, str]


def _read(path: Path) -> dict[Key, Fixed]:
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {tuple(row["key"]): Fixed(**{**row["fixed"], "kept": tuple(row["fixed"]["kept"])}) for row in rows}


def _append(path: Path, key: Key, fixed: Fixed) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps({"key": list(key), "fixed": asdict(fixed)}) + "\n")


def _repairs(path: Path | None, scenarios: list[Scenario]) -> dict[str, float]:
    """Script -> rate of its author's repaired version over that of the original, as benchmarks/diagnosis measured."""
    return {} if path is None else {one.scenario.name: one.measured for one in gains(scenarios, read(path))}


def page(
    scenarios: list[Scenario],
    tools: list[str],
    rows: dict[tuple[str, str], Fixed],
    options: argparse.Namespace,
    repairs: dict[str, float],
) -> str:
    """Markdown."""
    allowed = ", ".join(["identical", *sorted(options.allow)])
    versions = {RIVAL: RIVAL_VERSION} if RIVAL in tools else {}
    lines = [
        *head("What fix wins on scripts of other people", "benchmarks/fix/scripts.py", ("flatout", "torch"), versions),
        f"- The scripts of benchmarks/diagnosis, set `{options.set}`, on all cores. flatout: one run each, budget "
        f"{options.budget}, remedies of class {allowed}. Each speed-up is the tool's own figure, of its own pairs.",
        "- Repair: the author's repaired version beside the original, one run of each, 10 s; it may do what no setting "
        "can do from outside.",
        "",
    ]
    faulty = [one.name for one in scenarios if not one.healthy]
    for tool in tools:
        factors = [fixed.speedup or 1.0 for name in faulty if (fixed := rows.get((name, tool))) is not None]
        kept = [one.name for one in scenarios if one.healthy and (found := rows.get((one.name, tool))) and found.kept]
        healthy = sum((one.name, tool) in rows for one in scenarios if one.healthy)
        if factors:
            lines.append(
                f"- {tool}: {_mean(factors)} in the geometric mean of {len(factors)} scripts with a fault (1 where "
                f"nothing was kept: {factors.count(1.0)}); something kept on {len(kept)} of {healthy} healthy ones."
            )
    won = [(repairs[name], rows[name, FLATOUT].speedup or 1.0) for name in faulty if name in repairs]
    if won:
        lines.append(
            f"- Of the same scripts, repairs give {_mean(repair for repair, _ in won)}, flatout "
            f"{_mean(factor for _, factor in won)} ({len(won)} scripts)."
        )
    lines += ["", f"| script | planted | repair | {' | '.join(f'{tool} | kept | min' for tool in tools)} |"]
    lines.append("|---" * (3 + 3 * len(tools)) + "|")
    for one in scenarios:
        cells = [one.name, one.cause or "healthy", f"{repairs[one.name]:.2f}x" if one.name in repairs else ""]
        for tool in tools:
            fixed = rows.get((one.name, tool))
            cells += _cells(fixed) if fixed is not None else ["not asked", "", ""]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cells(fixed: Fixed) -> list[str]:
    speedup = f"{fixed.speedup:.2f}x" if fixed.speedup is not None else "nothing kept"
    return [speedup, "; ".join(fixed.kept) or fixed.note, f"{fixed.wall_s / 60:.1f}"]


def _mean(factors: Iterable[float]) -> str:
    return f"{statistics.geometric_mean(factors):.2f}x"


if __name__ == "__main__":
    main()
