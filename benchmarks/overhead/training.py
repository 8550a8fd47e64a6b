#!/usr/bin/env python3
"""The training whose cost is measured: an ordinary loop on the CPU that times its own steps.

Usage: training.py --width W --workers N --steps N --output FILE [--traceml]
       training.py --calibrate MS [MS ...] --output FILE
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import statistics
import time
from array import array
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

BATCH_SIZE = 16
SIDE = 16  # pixels
IMAGES = 1024
CLASSES = 10
WARMUP_STEPS = 10
PRINT_EVERY = 50
WITHIN = 0.04  # a width is good enough when its step is this close to what was asked for
MAX_WIDTH = 2048


class SmallNet(nn.Module):  # type: ignore[misc]
    """Two convolutions and a linear layer; the work grows with the square of ``width``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.head = nn.Linear(2 * width * (SIDE // 4) ** 2, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (batch, classes) of images (batch, 3, SIDE, SIDE)."""
        return self.head(self.features(images).flatten(1))


def make_loader(workers: int, steps: int) -> DataLoader[tuple[torch.Tensor, ...]]:
    """One epoch of ``steps`` shuffled batches from memory."""
    dataset = TensorDataset(torch.randn(IMAGES, 3, SIDE, SIDE), torch.randint(CLASSES, (IMAGES,)))
    sampler = RandomSampler(dataset, replacement=True, num_samples=steps * BATCH_SIZE)
    return DataLoader(dataset, batch_size=BATCH_SIZE, sampler=sampler, num_workers=workers)


def train(
    width: int, workers: int, steps: int, around_step: Callable[[nn.Module], contextlib.AbstractContextManager[object]]
) -> tuple[list[float], list[float]]:
    """Train for ``steps`` steps.

    Returns:
        Of each step the duration in seconds, its wait for the batch included, and the CPU time of all threads of
        this process.
    """
    torch.manual_seed(0)
    model = SmallNet(width)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = make_loader(workers, steps)
    ends = array("d", bytes(8 * (steps + 1)))
    cpu = array("d", ends)
    ends[0], cpu[0] = time.perf_counter(), time.process_time()
    for step, (images, labels) in enumerate(loader, start=1):
        with around_step(model):
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            if step % PRINT_EVERY == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
        ends[step], cpu[step] = time.perf_counter(), time.process_time()
    return _differences(ends), _differences(cpu)


def _differences(readings: array[float]) -> list[float]:
    return [after - before for before, after in itertools.pairwise(readings)]


def no_context(model: nn.Module) -> contextlib.AbstractContextManager[object]:
    """What stands around a step when no tool asks for code."""
    return contextlib.nullcontext()


def peak_rss_bytes() -> int | None:
    """Peak RSS of this process; None where the kernel does not say.

    Not ``getrusage``: its peak is kept across ``exec``, so it may be that of whatever started this process.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:")), None)


def median_step_s(width: int, target_s: float) -> float:
    """Median step time at a width without workers; fewer steps where they are long."""
    steps = max(7, min(60, int(0.4 / target_s)))
    durations, _ = train(width, 0, steps + 3, no_context)
    return statistics.median(durations[3:])


def width_for(target_s: float) -> int:
    """The width whose step takes about ``target_s``: doubled until it takes longer, then halved in between."""
    low, high = 1, 4
    while (seen_s := median_step_s(high, target_s)) < target_s and high < MAX_WIDTH:
        low, high = high, 2 * high
    best = (abs(seen_s - target_s), high)
    while high - low > 1 and best[0] > WITHIN * target_s:
        middle = (low + high) // 2
        seen_s = median_step_s(middle, target_s)
        best = min(best, (abs(seen_s - target_s), middle))
        low, high = (middle, high) if seen_s < target_s else (low, middle)
    return best[1]


def main() -> None:
    """Calibrate, or train once; the result goes to a file as JSON, away from the tools' own output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calibrate", type=float, nargs="+", metavar="MS", help="print the widths of these step times")
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--traceml", action="store_true", help="the code that TraceML documents for a plain loop")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)  # two cores are enough, and nothing of the training competes with itself
    if options.calibrate:
        options.output.write_text(json.dumps([width_for(milliseconds / 1000) for milliseconds in options.calibrate]))
        return
    around_step: Callable[[nn.Module], contextlib.AbstractContextManager[object]] = no_context
    if options.traceml:
        import traceml_ai  # type: ignore[import-not-found]

        traceml_ai.init(mode="auto")
        around_step = traceml_ai.trace_step
    durations, cpu = train(options.width, options.workers, WARMUP_STEPS + options.steps, around_step)
    result = {
        "steps": options.steps,
        "median_s": statistics.median(durations[WARMUP_STEPS:]),
        "mean_s": statistics.fmean(durations[WARMUP_STEPS:]),
        "cpu_s": statistics.fmean(cpu[WARMUP_STEPS:]),
        "peak_rss_bytes": peak_rss_bytes(),
    }
    options.output.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
