#!/usr/bin/env python3
"""Records the step times that benchmarks/statistics/run.py draws from: several runs each of many trainings.

The trainings are the scripts of benchmarks/diagnosis, most of them by people who know nothing of flatout. The runs of
one training follow each other, as those of a trial do. Of each step two times are kept: by the clock ("wall", with
whatever else the machine was doing), and on the processor ("cpu", what it takes on a machine of its own), the latter
only of trainings without worker processes.

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
SCRIPTS = HERE.parent / "diagnosis"
STEP_TIMES = HERE / "step_times.npz"
MOST = 120  # values kept of a run: more steps are added up in groups of equal size
LEAST = 30
LONGEST_S = 90.0  # from the start of a script to its last step
TRAININGS = (
    "unseen2/turbine_power_curve", "unseen2/pendulum_surrogate", "unseen2/review_textcnn", "unseen2/msg_topics",
    "unseen2/gated_tabular_net", "unseen2/spiral_neural_ode", "unseen2/patch_denoiser", "unseen2/music_tags",
    "unseen/plain_gru", "unseen/graph_messages", "scripts/sound_convnet", "scripts/slow_supply",
    "scripts/bursty_source", "scripts/short_passes", "unseen/ragged_collate", "unseen/heartbeat_thread",
    "scripts/sound_sequences", "unseen/checkpoint_every_ten", "unseen/greedy_threads", "unseen2/wing_surrogate",
    "unseen2/story_gpt_accum", "unseen/augment_in_loop", "scripts/sound_head", "scripts/sound_utterances",
    "scripts/one_helper", "scripts/journal_of_steps", "scripts/best_model_wins", "scripts/averaged_weights",
    "unseen/telemetry_keeper", "unseen/rare_checkpoints", "unseen/collected_each_step",
    "unseen/ensemble_of_small", "unseen2/gan_rings", "unseen2/load_forecast", "unseen2/week_ahead_load",
    "unseen2/session_ctr", "unseen2/patch_vae", "unseen2/tiny_char_transformer", "scripts/sound_device",
    "scripts/sound_reviews", "scripts/wide_and_few", "scripts/layers_watched",
)  # fmt: skip


def main() -> None:
    """Record what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scripts", nargs="*", default=list(TRAININGS), help="only these")
    parser.add_argument("--runs", type=int, default=4, help="of each training")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each run, from its first step")
    parser.add_argument("--output", type=Path, default=STEP_TIMES)
    options = parser.parse_args()
    found = dict(np.load(options.output)) if options.output.exists() else {}
    for script in options.scripts:
        name = Path(script).name
        if any(known.split("/")[0] == name for known in found):
            continue
        try:
            runs = [step_times(SCRIPTS / f"{script}.py", options.seconds) for _ in range(options.runs)]
        except ValueError as error:
            print(f"{name}: left out: {error}", file=sys.stderr, flush=True)
            continue
        clocks = set.intersection(*(set(run) for run in runs))
        for clock in sorted(clocks):
            found |= {f"{name}/{clock}/{number}": run[clock] for number, run in enumerate(runs)}
            means = ", ".join(f"{run[clock].mean() / 1e3:.2f}" for run in runs)
            load = os.getloadavg()[0]
            print(f"{name}/{clock}: {len(runs[0][clock])} values, means {means} ms; load {load:.1f}", file=sys.stderr)
        sys.stderr.flush()
        np.savez_compressed(options.output, **found)


def step_times(script: Path, seconds: float) -> dict[str, np.ndarray]:
    """Clock -> durations of one run's steps in µs, in groups of equal size where there are more than MOST.

    Raises:
        ValueError: the script failed, or made fewer than LEAST steps.
    """
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(script, folder)
        output = Path(folder) / "ends.json"
        command = [sys.executable, str(HERE / "timed.py"), script.name, str(seconds), str(output)]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=LONGEST_S, check=False,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ValueError(f"not over after {LONGEST_S:.0f} s") from None
        if not output.exists():
            raise ValueError((done.stderr.strip().splitlines() or ["it ended before its time"])[-1])
        found = json.loads(output.read_text())
    times_s = np.diff(np.array(found["ends"]), axis=0)
    if len(times_s) < LEAST:
        raise ValueError(f"{len(times_s)} steps, and {LEAST} are needed")
    size = -(-len(times_s) // MOST)
    times_s = times_s[: len(times_s) // size * size].reshape(-1, size, 2).sum(1)
    us = np.round(times_s * 1e6).astype(np.uint32)
    return {"wall": us[:, 0]} if found["workers"] else {"wall": us[:, 0], "cpu": us[:, 1]}


if __name__ == "__main__":
    main()
