#!/usr/bin/env python3
"""What page faults of large tensors cost a step on the CPU: the allocator as it is, memory kept, and huge pages.

Each run is a process of its own, and the kinds alternate. Beside the measured gain stands what the share of page
faults predicts, as in src/flatout/predict/page_faults.py.

Usage: python benchmarks/page_faults/run.py [--repeats N] [--steps N] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "shared"))

from conditions import head  # noqa: E402

from flatout.measure.page_faults import PageFaults  # noqa: E402
from flatout.runner.command import injecting_environment  # noqa: E402

NETWORKS = (
    "convolutions, 32 pictures of 128 x 128",
    "convolutions, 16 pictures of 64 x 64",
    "perceptron, 4,096 rows",
    "transformer, 16 sequences of 256",
    "transformer, lengths that vary",
    "LSTM, 32 sequences of 100",
)
AS_IT_IS, KEPT, HUGE = "as it is", "memory_kept", "huge_pages"
_USUAL = 1.2


def main() -> None:
    """Measure all networks, or one in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="processes of each kind (default: 3)")
    parser.add_argument("--steps", type=int, default=20, help="that count, after five others (default: 20)")
    parser.add_argument("--output", type=Path, help="a Markdown page")
    parser.add_argument("--network", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.network is not None:
        print(json.dumps(_train(options.network, options.steps)))
        return
    rows = []
    for number, name in enumerate(NETWORKS):
        seen: dict[str, list[dict[str, float]]] = {AS_IT_IS: [], KEPT: [], HUGE: []}
        for _ in range(options.repeats):
            for kind, runs in seen.items():
                runs.append(_run(number, options.steps, kind))
        rows.append(_row(name, seen))
        print(rows[-1], file=sys.stderr, flush=True)
    text = page(rows, options)
    if options.output:
        options.output.write_text(text)
    print(text)


def _run(number: int, steps: int, kind: str) -> dict[str, float]:
    environment = injecting_environment() | ({"FLATOUT_SETTINGS": json.dumps({kind: True})} if kind != AS_IT_IS else {})
    command = [sys.executable, __file__, "--network", str(number), "--steps", str(steps)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _train(number: int, steps: int) -> dict[str, float]:
    import torch

    torch.manual_seed(0)
    model, batch = _network(number, torch)
    optimizer = torch.optim.Adam(model.parameters())
    times_s: list[float] = []
    for step in range(5 + steps):
        if step == 5:
            before, begin_cpu_s = resource.getrusage(resource.RUSAGE_SELF), time.process_time()
        begin_s = time.perf_counter()
        optimizer.zero_grad()
        output = model(batch(step))
        (output[0] if isinstance(output, tuple) else output).pow(2).mean().backward()
        optimizer.step()
        times_s.append(time.perf_counter() - begin_s)
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "step_s": statistics.median(times_s[5:]),
        "mean_s": statistics.fmean(times_s[5:]),
        "faults": (after.ru_minflt - before.ru_minflt) / steps,
        "system_s": (after.ru_stime - before.ru_stime) / steps,
        "cpu_s": (time.process_time() - begin_cpu_s) / steps,
        "peak_mib": after.ru_maxrss / 1024,
    }


def _network(number: int, torch: Any) -> tuple[Any, Any]:
    """A model, and a function from the step to its batch."""
    nn = torch.nn
    if number < 2:
        width, count, side = ((32, 32, 128), (16, 16, 64))[number]
        layers = [nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        pictures = torch.randn(count, 3, side, side)
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)), lambda _: pictures
    if number == 2:
        rows = torch.randn(4096, 512)
        return nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU()), lambda _: rows
    if number == 5:
        sequences = torch.randn(32, 100, 128)
        return nn.LSTM(128, 256, batch_first=True), lambda _: sequences
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4, 512, batch_first=True), 2)
    if number == 3:
        tokens = torch.randn(16, 256, 256)
        return model, lambda _: tokens
    return model, lambda step: torch.randn(16, 64 + 37 * step % 192, 256)


def _row(name: str, seen: dict[str, list[dict[str, float]]]) -> str:
    def middle(kind: str, what: str) -> float:
        return statistics.median(one[what] for one in seen[kind])

    faults = PageFaults(
        middle(AS_IT_IS, "faults") / middle(AS_IT_IS, "mean_s"),
        middle(AS_IT_IS, "system_s") / middle(AS_IT_IS, "mean_s"),
        middle(AS_IT_IS, "cpu_s") / middle(AS_IT_IS, "mean_s"),
    )
    gain = middle(AS_IT_IS, "step_s") / middle(KEPT, "step_s")
    predicted = 1.0 / (1.0 - min(_USUAL * faults.part(), 0.9))
    cells = [
        name,
        f"{middle(AS_IT_IS, 'step_s') * 1e3:.0f} ms",
        f"{middle(KEPT, 'step_s') * 1e3:.0f} ms",
        f"{gain:.2f}x",
        f"{predicted:.2f}x",
        f"{middle(AS_IT_IS, 'step_s') / middle(HUGE, 'step_s'):.2f}x",
        f"{middle(AS_IT_IS, 'faults'):,.0f}",
        f"{middle(KEPT, 'faults'):,.0f}",
        f"{middle(HUGE, 'faults'):,.0f}",
        f"{middle(AS_IT_IS, 'peak_mib'):,.0f} MiB",
        f"{middle(KEPT, 'peak_mib'):,.0f} MiB",
        f"{middle(HUGE, 'peak_mib'):,.0f} MiB",
    ]
    return f"| {' | '.join(cells)} |"


def page(rows: list[str], options: argparse.Namespace) -> str:
    """Markdown."""
    columns = ("network", "step", "memory kept", "gain", "predicted", "gain of huge pages")
    columns += ("faults a step", "kept", "huge", "peak memory", "kept", "huge")
    lines = [
        *head("What page faults of large tensors cost", "benchmarks/page_faults/run.py", ("flatout", "torch"), {}),
        f"- Trainings on random data, all cores, {options.steps} steps after five others; medians of {options.repeats} "
        "processes of each kind, in turn.",
        "- Predicted: 1 / (1 - 1.2 x the share of page faults in the CPU time), at most 10x.",
        "",
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
        *rows,
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
