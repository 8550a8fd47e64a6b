#!/usr/bin/env python3
"""Live trials beside restarted ones: the factor of the same settings, measured both ways, and what each took.

Each pair is one live trial (blocks in one process) and one restarted trial (runs A B B A, two pairs) of one setting on
one script, which sleeps before it trains, as a slow start does. What is compared is how far the two factors disagree.

Usage: python benchmarks/fix/live.py [--start SECONDS] [--repeats N] [--cases NAME ...] [--output FILE]
"""

from __future__ import annotations

import argparse
import os
import statistics
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

from flatout.compare.ratio import Ratio  # noqa: E402
from flatout.runner import Bounds  # noqa: E402
from flatout.trials.isolation import find_isolation  # noqa: E402
from flatout.trials.live import found, plan  # noqa: E402
from flatout.trials.pairs import measure_pairs  # noqa: E402
from flatout.trials.screening import bounded  # noqa: E402
from flatout.trials.trial_run import TrialSetup, run_blocks, run_once  # noqa: E402

SCRIPT = """
import os, time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Samples(Dataset):
    def __len__(self):
        return {length}
    def __getitem__(self, index):
        {work}
        return torch.randn(64), index % 3

def main():
    time.sleep({start})
    model = nn.Sequential(nn.Linear(64, {width}), nn.ReLU(), nn.Linear({width}, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader = DataLoader(Samples(), 8, shuffle=True, {loader})
    while True:
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

if __name__ == "__main__":
    main()
"""
WAITS, COMPUTES = "time.sleep(0.005)", "sum(i * i for i in range(20000))"
# name -> parts of the script, the setting that is tried
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "slow service, 1 worker to 3": (
        {"work": WAITS, "length": 100_000, "width": 64, "loader": "num_workers=1"},
        {"num_workers": 3, "persistent_workers": True},
    ),
    "computing samples, 0 workers to 1": (
        {"work": COMPUTES, "length": 100_000, "width": 1024, "loader": "num_workers=0"},
        {"num_workers": 1, "persistent_workers": True},
    ),
    "slow service, 2 workers to 1": (
        {"work": WAITS, "length": 100_000, "width": 64, "loader": "num_workers=2"},
        {"num_workers": 1},
    ),
    "fast samples, 1 worker to 2": (
        {"work": "pass", "length": 100_000, "width": 4096, "loader": "num_workers=1"},
        {"num_workers": 2},
    ),
    "short passes, 1 worker to 1 that stays": (
        {"work": WAITS, "length": 64, "width": 64, "loader": "num_workers=1"},
        {"persistent_workers": True},
    ),
    "deeper queue": (
        {"work": WAITS, "length": 100_000, "width": 64, "loader": "num_workers=2"},
        {"prefetch_factor": 8},
    ),
}


@dataclass(frozen=True)
class Row:
    """One pair of trials.

    Attributes:
        case: its name.
        live: the ratio of the live trial; None: it was not measured.
        restarted: the ratio of the restarted one.
        live_s: that the live trial took.
        restarted_s: that the restarted one took.
        note: why something is missing.
    """

    case: str
    live: Ratio | None
    restarted: Ratio | None
    live_s: float
    restarted_s: float
    note: str = ""

    @property
    def disagreement(self) -> float | None:
        """Live factor over the restarted one, less 1; None: one of them is missing."""
        if self.live is None or self.restarted is None:
            return None
        return self.live.factor / self.restarted.factor - 1.0


def main() -> None:
    """Measure all cases, live and restarted in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="*", default=list(CASES), help="only these")
    parser.add_argument("--start", type=float, default=5.0, help="seconds of the script's start-up")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0, help="measured time of each restarted run")
    parser.add_argument("--output", type=Path, help="a Markdown page")
    options = parser.parse_args()
    rows: list[Row] = []
    for repeat in range(options.repeats):
        for name in options.cases:
            rows.append(_row(name, options.start, options.seconds, repeat))
            print(rows[-1], file=sys.stderr, flush=True)
            if options.output:
                options.output.write_text(page(rows, options.start, options.seconds))
    print(page(rows, options.start, options.seconds))


def _row(name: str, start: float, seconds: float, repeat: int) -> Row:
    parts, settings = CASES[name]
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        script = folder / "train.py"
        script.write_text(SCRIPT.format(start=start, **parts))
        bounds = Bounds(seconds=seconds, first_step_within_s=120.0)
        command = (sys.executable, str(script))
        setup = TrialSetup(command, folder / "fix", folder / "fix" / "runs", bounds, find_isolation(folder / "fix"))
        begin_s = time.monotonic()
        blocks = plan([settings], {"num_workers": 3}, 0.02, repeat)
        ran = run_blocks(bounded(setup, blocks), {}, blocks.to_dict())
        live_s = time.monotonic() - begin_s
        finding = found(ran.run, blocks)[0] if ran.run is not None else None
        begin_s = time.monotonic()
        pairs = measure_pairs(
            lambda wanted: run_once(setup, wanted),
            {},
            settings,
            room=lambda runs: True,
            decided=lambda ratio: ratio.pairs >= 2,
        )
        restarted_s = time.monotonic() - begin_s
        note = finding.because if finding is not None and finding.ratio is None else ran.detail
        if pairs.failed is not None:
            note = f"{note} {pairs.failed.detail}".strip()
        ratio = finding.ratio if finding is not None else None
        return Row(name, ratio, pairs.ratio(), live_s, restarted_s, note)


def page(rows: list[Row], start: float, seconds: float) -> str:
    """Markdown."""
    apart = [abs(row.disagreement) for row in rows if row.disagreement is not None]
    lines = [
        *head("Live trials beside restarted ones", "benchmarks/fix/live.py", ("flatout", "torch"), {}),
        f"- The scripts sleep for {start:g} s before they train. A restarted trial is A B B A, {seconds:g} s of each "
        "run (one pair where the first was hopeless); a live one has five pairs of blocks of 1.5 s or more.",
    ]
    if apart:
        lines.append(
            f"- {len(apart)} pairs of trials: the factors disagree by {statistics.median(apart):.1%} in the median, "
            f"by {max(apart):.1%} at most."
        )
    lines += [
        "",
        "| setting | live | restarted | disagreement | live took | restarted took |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        apart_text = f"{row.disagreement:+.1%}" if row.disagreement is not None else row.note or "-"
        lines.append(
            f"| {row.case} | {_text(row.live)} | {_text(row.restarted)} | {apart_text} | {row.live_s:.0f} s "
            f"| {row.restarted_s:.0f} s |"
        )
    return "\n".join(lines) + "\n"


def _text(ratio: Ratio | None) -> str:
    if ratio is None:
        return "not measured"
    return f"{ratio.factor:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"


if __name__ == "__main__":
    main()
