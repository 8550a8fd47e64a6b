#!/usr/bin/env python3
"""What the parts of the probe add to a step, in one process: recording is switched off and on every few steps.

    python benchmarks/overhead/in_process.py                      # 2 ms steps, without and with 2 workers: 3 minutes
    python benchmarks/overhead/in_process.py --step-ms 10 --workers 0

Two processes of one script differ by more than the probe costs. Here blocks of steps take turns in the same process:
bare, with the functions' original code and no sampler; events only; the sampler only; both. Workers are recorded
throughout, so what they pay is not in the difference.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "shared")]

import torch  # noqa: E402
from conditions import head  # noqa: E402
from scipy import stats  # noqa: E402
from torch import nn  # noqa: E402
from training import SmallNet, make_loader, width_for  # noqa: E402

ARMS = {"bare": (False, False), "events": (True, False), "sampler": (False, True), "both": (True, True)}
LEFT_OUT = 5  # steps at the beginning of a block, whose caches the change has emptied


def main() -> int:
    """Measure each number of workers in a process of its own, under ``flatout profile``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step-ms", type=float, default=2.0)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--rounds", type=int, default=60, help="of one block of each kind (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.25, help="of a block (default: %(default)s)")
    parser.add_argument("--output", type=Path, help="write the page there, too")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--width", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.train:
        found = measure(options.width, options.workers[0], options.rounds, options.seconds, options.step_ms / 1e3)
        options.train.write_text(json.dumps(found))
        return 0
    width = width_for(options.step_ms / 1e3)
    lines = [
        *head(
            "What the parts of the probe add to a step", "benchmarks/overhead/in_process.py", ("flatout", "torch"), {}
        )
    ]
    lines += [
        f"- {options.rounds} rounds of blocks of {options.seconds:g} s; median differences and their 90% intervals",
        "",
        "| workers | bare step | part | added to the mean step | to the median step | blocks |",
        "|---|---|---|---|---|---|",
    ]
    for workers in options.workers:
        lines += table(workers, under_flatout(options, workers, width))
    page = "\n".join(lines) + "\n"
    print(page)
    if options.output:
        options.output.write_text(page)
    return 0


def under_flatout(options: argparse.Namespace, workers: int, width: int) -> dict[str, list[tuple[float, float]]]:
    """Mean and median step of each block, seconds, by kind."""
    with tempfile.TemporaryDirectory() as name:
        output = Path(name) / "blocks.json"
        script = [__file__, "--train", str(output), "--workers", str(workers), "--width", str(width)]
        script += [
            "--rounds",
            str(options.rounds),
            "--seconds",
            str(options.seconds),
            "--step-ms",
            str(options.step_ms),
        ]
        profile = [sys.executable, "-m", "flatout", "profile", "--full", "--no-trace", "--quiet"]
        subprocess.run([*profile, "--", sys.executable, *script], cwd=name, check=True, stdout=subprocess.DEVNULL)
        found: dict[str, list[tuple[float, float]]] = json.loads(output.read_text())
        return found


def table(workers: int, blocks: dict[str, list[tuple[float, float]]]) -> Iterator[str]:
    """Rows of the page: each kind of block less the bare one of its round."""
    bare = blocks.pop("bare")
    step_ms = 1e3 * statistics.median(median for _, median in bare)
    for kind, found in blocks.items():
        cells = []
        for part in (0, 1):
            added = [1e6 * (one[part] - other[part]) for one, other in zip(found, bare, strict=True)]
            low, high = stats.quantile_test(added, q=0, p=0.5).confidence_interval(0.9)
            cells.append(f"{statistics.median(added):+.0f} µs ({low:+.0f} to {high:+.0f})")
        yield f"| {workers} | {step_ms:.2f} ms | {kind} | {' | '.join(cells)} | {len(found)} |"


def measure(
    width: int, workers: int, rounds: int, seconds: float, step_s: float
) -> dict[str, list[tuple[float, float]]]:
    """Train; each round has one block of each kind, in an order that turns."""
    steps = max(int(seconds / step_s), 2 * LEFT_OUT)
    kinds = list(ARMS)
    order = [kind for number in range(rounds) for kind in _turned(kinds, number)]
    durations = _durations(width, workers, steps * (len(order) + 1), steps, order)
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for number, kind in enumerate(order):
        block = durations[(number + 1) * steps + LEFT_OUT : (number + 2) * steps]  # the first is warm-up
        found[kind].append((statistics.fmean(block), statistics.median(block)))
    return found


def _turned(kinds: list[str], number: int) -> list[str]:
    first = number // 2 % len(kinds)
    turned = [*kinds[first:], *kinds[:first]]
    return turned[::-1] if number % 2 else turned


def _durations(width: int, workers: int, count: int, steps: int, order: list[str]) -> list[float]:
    torch.manual_seed(0)
    model = SmallNet(width)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    switch = Switch()
    ends = [time.perf_counter()]
    for step, (images, labels) in enumerate(make_loader(workers, count), start=1):
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        if step % steps == 0 and step < count:
            switch.to(*ARMS[order[step // steps - 1]])
        ends.append(time.perf_counter())
    switch.to(True, True)
    return [after - before for before, after in itertools.pairwise(ends)]


class Switch:
    """Switches the parts of the probe in this process."""

    def __init__(self) -> None:
        self.recorder: Any = sys.modules["_flatout_probe.recorder"].REC
        self.stacks: Any = sys.modules["_flatout_probe.stacks"]
        self.plain: dict[Any, Any] = sys.modules["_flatout_probe.in_place"]._instrumented
        self.timed: dict[Any, Any] = {}

    def to(self, events: bool, sampler: bool) -> None:
        """Record events or not; run the sampler or not."""
        for function, plain in self.plain.items():
            self.timed.setdefault(function, function.__code__)
            function.__code__ = self.timed[function] if events else plain
        self.recorder.on = events or sampler
        if sampler and not self.stacks.running():
            self.stacks.start()
        elif not sampler:
            self.stacks.stop()


if __name__ == "__main__":
    sys.exit(main())
