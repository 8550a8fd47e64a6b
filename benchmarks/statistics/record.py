#!/usr/bin/env python3
"""Records the step times that benchmarks/statistics/run.py draws from: several runs each of many trainings.

Some trainings are other people's scripts and those of the tests, the others combine small networks with ways in which
batches come (small.py). The runs of one training follow each other, as those of a trial do, on a machine as busy as it
happens to be.

Usage: python benchmarks/statistics/record.py [--scripts "FILE ARGUMENTS" ...] [--runs N] [--seconds S] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
STEP_TIMES = HERE / "step_times.npz"
MOST = 120  # values kept of a run: more steps are added up in groups of equal size
LEAST = 20
LONGEST_S = 150.0  # for all runs of a script
SMALL = "benchmarks/statistics/small.py"
TRAININGS = (
    "benchmarks/diagnosis/unseen2/turbine_power_curve.py",
    "benchmarks/diagnosis/unseen2/pendulum_surrogate.py",
    "benchmarks/diagnosis/unseen2/msg_topics.py",
    "tests/end_to_end/planted/one_worker_for_a_slow_service.py",
    "tests/end_to_end/planted/one_archive_for_all.py",
    "tests/end_to_end/planted/a_pause_now_and_then.py",
    "benchmarks/diagnosis/scripts/one_connection.py",
    "benchmarks/diagnosis/unseen2/gated_tabular_net.py",
    *(
        f"{SMALL} {network} {feed}"
        for feed in ("memory", "even", "skewed", "bursty", "files", "checkpoints", "validation")
        for network in ("dense", "conv", "recurrent", "attention")
    ),
)


def main() -> None:
    """Record what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scripts", nargs="*", default=list(TRAININGS), help="only these")
    parser.add_argument("--runs", type=int, default=6, help="of each training")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run, from its first step")
    parser.add_argument("--output", type=Path, default=STEP_TIMES)
    options = parser.parse_args()
    found = dict(np.load(options.output)) if options.output.exists() else {}
    for script in options.scripts:
        name = Path(script).name.replace(".py", "").replace(" ", "_")
        if any(known.split("/")[0] == name for known in found):
            continue
        try:
            runs = step_times(script, options.seconds, options.runs)
        except ValueError as error:
            print(f"{name}: left out: {error}", file=sys.stderr, flush=True)
            continue
        found |= {f"{name}/{number}": steps_us for number, steps_us in enumerate(runs)}
        np.savez_compressed(options.output, **found)
        means = ", ".join(f"{steps_us.mean() / 1e3:.2f}" for steps_us in runs)
        load = os.getloadavg()[0]
        print(f"{name}: {len(runs[0])} values, means {means} ms; load {load:.1f}", file=sys.stderr, flush=True)


def step_times(script: str, seconds: float, runs: int) -> list[np.ndarray]:
    """Durations of each run's steps in µs, in groups of equal size where there are more than MOST.

    Raises:
        ValueError: the script failed, or made fewer than LEAST steps.
    """
    with tempfile.TemporaryDirectory() as folder:
        path, *arguments = script.split()
        shutil.copy(ROOT / path, folder)
        output = Path(folder) / "ends"
        command = [sys.executable, str(HERE / "timed.py"), str(seconds), str(runs), str(output), Path(path).name]
        try:
            done = subprocess.run(
                [*command, *arguments], cwd=folder, capture_output=True, text=True, timeout=LONGEST_S, check=False,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ValueError(f"not over after {LONGEST_S:.0f} s") from None
        if done.returncode != 0:
            raise ValueError(" ".join(done.stderr.split()[-12:]))
        return [_grouped(json.loads(output.with_suffix(f".{number}").read_text())) for number in range(runs)]


def _grouped(ends_s: list[float]) -> np.ndarray:
    steps_s = np.diff(ends_s)
    if len(steps_s) < LEAST:
        raise ValueError(f"{len(steps_s)} steps, and {LEAST} are needed")
    size = -(-len(steps_s) // MOST)
    steps_s = steps_s[: len(steps_s) // size * size].reshape(-1, size).sum(1)
    return np.round(steps_s * 1e6).astype(np.uint32)


if __name__ == "__main__":
    main()
