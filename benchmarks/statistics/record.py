#!/usr/bin/env python3
"""Records the step times that benchmarks/statistics/run.py draws from: several runs each of many trainings.

The runs of one training follow each other, as those of a trial do, on a machine as busy as it happens to be.

Usage: python benchmarks/statistics/record.py [--scripts NAME ...] [--runs N] [--seconds S] [--output FILE]
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
LEAST = 24
LONGEST_S = 100.0  # for all runs of a script
TRAININGS = (
    "benchmarks/diagnosis/unseen2/turbine_power_curve",
    "tests/end_to_end/planted/one_worker_for_a_slow_service",
    "benchmarks/diagnosis/unseen2/pendulum_surrogate",
    "tests/end_to_end/planted/one_archive_for_all",
    "benchmarks/diagnosis/unseen2/review_textcnn",
    "tests/end_to_end/planted/a_pause_now_and_then",
    "benchmarks/diagnosis/unseen2/msg_topics",
    "benchmarks/diagnosis/scripts/bursty_source",
    "benchmarks/diagnosis/unseen2/gated_tabular_net",
    "benchmarks/diagnosis/scripts/one_connection",
    "benchmarks/diagnosis/unseen2/spiral_neural_ode",
    "benchmarks/diagnosis/scripts/one_helper",
    "benchmarks/diagnosis/unseen2/music_tags",
    "benchmarks/diagnosis/scripts/shared_archive",
    "benchmarks/diagnosis/unseen2/wing_surrogate",
    "benchmarks/diagnosis/scripts/sound_device",
    "benchmarks/diagnosis/unseen/plain_gru",
    "benchmarks/diagnosis/scripts/slow_supply",
    "benchmarks/diagnosis/unseen/graph_messages",
    "benchmarks/diagnosis/scripts/clips_of_all_lengths",
    "benchmarks/diagnosis/unseen/ragged_collate",
    "benchmarks/diagnosis/unseen/hidden_by_prefetch",
    "benchmarks/diagnosis/unseen/heartbeat_thread",
    "benchmarks/diagnosis/unseen/checkpoint_every_ten",
    "benchmarks/diagnosis/unseen/greedy_threads",
    "tests/end_to_end/planted/nothing_wrong",
    "tests/end_to_end/planted/short_epochs",
    "tests/end_to_end/planted/fetching_in_the_training_process",
    "tests/end_to_end/planted/tiny_batches",
    "tests/end_to_end/planted/many_checkpoints",
    "tests/end_to_end/planted/a_log_of_everything",
    "tests/end_to_end/planted/statistics_in_python",
    "tests/end_to_end/planted/elaborate_augmentation",
    "tests/end_to_end/planted/large_photographs",
    "tests/end_to_end/planted/constant_validation",
    "tests/end_to_end/planted/sentences_of_one_length",
    "tests/end_to_end/planted/garbage_in_every_step",
    "tests/end_to_end/planted/one_cell_at_a_time",
    "tests/end_to_end/planted/recordings_of_all_lengths",
    "tests/end_to_end/planted/a_thread_of_its_own",
    "tests/end_to_end/planted/points_through_workers",
    "benchmarks/diagnosis/scripts/short_passes",
    "benchmarks/diagnosis/scripts/averaged_weights",
    "benchmarks/diagnosis/scripts/best_model_wins",
    "benchmarks/diagnosis/scripts/sound_head",
)


def main() -> None:
    """Record what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scripts", nargs="*", default=list(TRAININGS), help="only these")
    parser.add_argument("--runs", type=int, default=6, help="of each training")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run, from its first step")
    parser.add_argument("--output", type=Path, default=STEP_TIMES)
    options = parser.parse_args()
    found = dict(np.load(options.output)) if options.output.exists() else {}
    for script in options.scripts:
        name = Path(script).name
        if any(known.split("/")[0] == name for known in found):
            continue
        try:
            runs = step_times(ROOT / f"{script}.py", options.seconds, options.runs)
        except ValueError as error:
            print(f"{name}: left out: {error}", file=sys.stderr, flush=True)
            continue
        found |= {f"{name}/{number}": steps_us for number, steps_us in enumerate(runs)}
        np.savez_compressed(options.output, **found)
        means = ", ".join(f"{steps_us.mean() / 1e3:.2f}" for steps_us in runs)
        load = os.getloadavg()[0]
        print(f"{name}: {len(runs[0])} values, means {means} ms; load {load:.1f}", file=sys.stderr, flush=True)


def step_times(script: Path, seconds: float, runs: int) -> list[np.ndarray]:
    """Durations of each run's steps in µs, in groups of equal size where there are more than MOST.

    Raises:
        ValueError: the script failed, or made fewer than LEAST steps.
    """
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(script, folder)
        output = Path(folder) / "ends"
        command = [sys.executable, str(HERE / "timed.py"), script.name, str(seconds), str(runs), str(output)]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=LONGEST_S, check=False,
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
