#!/usr/bin/env python3
"""How soon a search finds good settings: on measured grids, against an exhaustive search and a climb by one setting.

Every configuration of a grid is recorded once (benchmarks/prediction). A search may look only at records of
configurations that it asked for; what it costs is the share of the grid's configurations that it asked for.

Usage: python benchmarks/search/run.py [--grids NAME ...] [--seconds S] [--output FILE]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "prediction"), str(HERE.parent / "shared")]

import numpy as np  # noqa: E402
from conditions import head  # noqa: E402
from grids import Configuration, Grid, Measured, measure, read_grids  # noqa: E402
from rivals import prepare  # noqa: E402

from flatout.measure.build import build_view  # noqa: E402
from flatout.measure.thresholds import NOISE_SHARE  # noqa: E402
from flatout.predict.rate_model import fit  # noqa: E402
from flatout.predict.whatif import Wanted, WhatIf  # noqa: E402

ROOT = HERE.parent.parent
DATA = ROOT / "build" / "prediction"
NEARLY = 0.98  # as flatout/remedies/queue.py
LOADTUNE, VERSION = "loadtune", "0.3.0"
GRIDS = (
    "latency",
    "high_latency",
    "computing",
    "mixed",
    "skewed",
    "batches",
)  # of settings that a user has, 12 or more
GOAL = "97% of the grid's best rate in at most a quarter of the grid's time"
Table = dict[Configuration, Measured]


def by_model(grid: Grid, table: Table) -> list[Configuration]:
    """Flatout's way: the model proposes the best configuration, it is measured, and the model is fitted to it anew."""
    asked = [grid.start]
    while True:
        best = max(asked, key=lambda configuration: table[configuration].rate)
        view = build_view(table[best].runs[0])
        model = fit(view) if view else None
        assert view is not None and model is not None
        whatif = WhatIf(view, model)
        gains = {
            other: whatif.gain(
                Wanted(
                    num_workers=dict(other)["workers"],
                    prefetch_factor=dict(other).get("prefetch"),
                    batch_size=dict(other).get("batch"),
                )
            ).predicted
            for other in grid.configurations()
            # As the remedy does it: no shallower queue is proposed.
            if other not in asked and dict(other).get("prefetch", 2) >= dict(best).get("prefetch", 2)
        }
        most = max(gains.values(), default=0.0)
        if most < 1.0 + NOISE_SHARE:
            return asked
        # Fewest workers, then the shallowest queue, that nearly give the best rate.
        asked.append(min((dict(other)["workers"], other) for other, gain in gains.items() if gain >= NEARLY * most)[1])


def climbing(grid: Grid, table: Table) -> list[Configuration]:
    """The usual way: raise one setting after the other as long as it helps by 3%, from the same start."""
    asked, best = [grid.start], grid.start
    for name, values in grid.vary.items():
        for value in values:
            other = tuple((key, value if key == name else old) for key, old in best)
            if other not in table or other in asked or values.index(value) <= values.index(dict(best)[name]):
                continue
            asked.append(other)
            if table[other].rate < (1.0 + NOISE_SHARE) * table[best].rate:
                break
            best = other
    return asked


def by_loadtune(grid: Grid, table: Table) -> list[Configuration]:
    """Loadtune's own rules (its HeuristicBrain), given what its profile would show; 2 is its default depth."""
    from loadtune.heuristic import HeuristicBrain
    from loadtune.profiler import ProfileResult

    run = table[grid.start].runs[0]
    view = build_view(run)
    assert view is not None and view.loading is not None and view.cores is not None
    now, steps = dict(grid.start), view.ledger.steps
    busy = [statistics.mean(sample["cpu"]) for sample in run.system() if sample.get("cpu")]
    wait = view.ledger.share("batch_wait")
    profile = ProfileResult(
        workload=grid.name,
        knobs={"num_workers": now["workers"], "batch_size": now.get("batch"), "persistent_workers": now["workers"] > 0},
        device="cpu",
        num_cpus=int(view.cores),
        steps=steps.count,
        batch_size=view.loading.settings.batch_size or 0,
        total_s=view.ledger.window_s,
        data_wait_s=wait * view.ledger.window_s,
        compute_s=(1 - wait) * view.ledger.window_s,
        startup_s=0.0,
        throughput=table[grid.start].rate,
        data_wait_frac=wait,
        step_time_p50_ms=1000 * steps.median_s,
        step_time_p90_ms=1000 * float(np.quantile(view.loading.delivery.whole_step_s, 0.9)),
        cpu_util_mean=100 * statistics.mean(busy) if busy else None,
    )
    asked = [grid.start]
    for trial in HeuristicBrain().propose(profile, max_trials=6):
        knobs = trial.knobs
        wanted = {**now, "workers": knobs.num_workers}
        if "prefetch" in now:
            wanted["prefetch"] = knobs.prefetch_factor or 2
        configuration = tuple(wanted.items())
        if configuration in table and configuration not in asked:
            asked.append(configuration)
    return asked


def exhaustive(grid: Grid, table: Table) -> list[Configuration]:
    """Everything."""
    return grid.configurations()


def main() -> None:
    """Measure what is not measured, search, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grids", nargs="*", default=list(GRIDS), help="only these")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each configuration")
    parser.add_argument("--output", type=Path, help="a Markdown page")
    options = parser.parse_args()
    tables = [(grid, measure(grid, DATA, options.seconds, options.rounds)) for grid in read_grids(options.grids)]
    text = page(tables, options.rounds)
    if options.output:
        options.output.write_text(text)
    print(text)


def page(tables: list[tuple[Grid, Table]], rounds: int) -> str:
    """Markdown."""
    environment = prepare(ROOT / "build" / "search" / "rivals", {LOADTUNE: VERSION})
    if environment.missing:
        raise SystemExit(f"{LOADTUNE} cannot be compared: {environment.missing[LOADTUNE]}")
    sys.path.append(sysconfig.get_path("purelib", "venv", {"base": str(Path(environment.python).parent.parent)}))
    ways: dict[str, Callable[[Grid, Table], list[Configuration]]] = {
        "flatout's model": by_model,
        "one setting after the other": climbing,
        f"{LOADTUNE}'s rules": by_loadtune,
        "exhaustive": exhaustive,
    }
    rows, totals = [], {name: [] for name in ways}
    for grid, table in tables:
        best = max(found.rate for found in table.values())
        cells = []
        for name, way in ways.items():
            asked = way(grid, table)
            reached = max(table[configuration].rate for configuration in asked) / best
            cells.append(f"{reached:.1%} with {len(asked)} of {len(table)}")
            totals[name].append((reached, len(asked) / len(table)))
        rows.append(f"| {grid.name} | {' | '.join(cells)} |")
    medians = [
        f"{statistics.median(r for r, _ in found):.1%} in {statistics.median(c for _, c in found):.0%}"
        for found in totals.values()
    ]
    met = sum(reached >= 0.97 and cost <= 0.25 for reached, cost in totals["flatout's model"])
    lines = [
        *head(
            "How soon the search finds good settings",
            "benchmarks/search/run.py",
            ("flatout", "torch"),
            {LOADTUNE: VERSION},
        ),
        "- Each cell: the best rate among the configurations that were asked for, of the grid's best, and how many "
        f"were asked for, the start included. Rates are medians of {rounds} runs: the best of many is partly luck.",
        f"- Goal: {GOAL}. Met on {met} of {len(tables)} grids.",
        f"- {LOADTUNE} needs a Workload written for it: its rules are asked here, with the figures that its profile "
        "would show, for at most 6 trials, its default; it tries no more workers than cores.",
        "",
        f"| grid | {' | '.join(ways)} |",
        "|---" * (len(ways) + 1) + "|",
        *rows,
        f"| median | {' | '.join(medians)} |",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
