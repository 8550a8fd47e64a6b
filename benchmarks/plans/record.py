#!/usr/bin/env python3
"""Records the whole trainings whose ends benchmarks/plans/run.py predicts: when each step began and ended.

Most are scripts of benchmarks/diagnosis: loops, Lightning and Hugging Face, with and without validation and
checkpoints. Each is recorded once for a few seconds, to choose how many epochs last about as long as asked for, and then to its end.

Usage: python benchmarks/plans/record.py [--seconds S] [--only NAME ...] [--output FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

from flatout.errors import FlatoutError
from flatout.plans.timeline import Timeline, timeline_of
from flatout.record import load_run
from flatout.runner import Bounds, record

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TRAININGS = HERE / "trainings.npz"
EPOCHS = re.compile(
    r"(?P<before>epoch\w* in range\((?:1, )?|EPOCHS = |max_epochs=|num_train_epochs=|\"--epochs\", type=int, default=)"
    r"\d+"
)
LEAST_EPOCHS, MOST_EPOCHS = 4, 60
LOOK_S = 6.0
MOST_S = 90.0  # one that takes longer is left out
OWN = ("plain", "validated", "saved", "validated_and_saved", "cold", "uneven", "workers", "stopped")
SCRIPTS = (
    *("lit_checks", "lit_keeps_all", "sound_lightning", "best_model_wins", "tested_and_kept", "first_attempt"),
    *("sound_convnet", "sound_device", "head_on_features", "sentences_padded", "wide_and_few", "drawn_predictions"),
    *("journal_of_steps", "measured_and_reshuffled", "bird_calls", "layer_watcher", "cells_by_hand", "one_at_a_time"),
    *("sorted_buckets", "zero_workers_in_memory", "frozen_but_tracked", "plain_gru", "vit_from_timm", "graph_messages"),
    *("lit_sound_logging", "trainer_counts_tokens", "wing_surrogate", "week_ahead_load", "photo_autoencoder"),
    *("finetune_head", "photo_classifier", "scene_lightning", "bike_rental_lightning", "session_ctr", "ecg_metrics"),
    *("cloud_lit", "lang_id_hf", "ticket_routing_hf", "texture_lightning", "ragged_collate", "rare_events"),
)


def main() -> None:
    """Record what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=25.0, help="about what a training lasts")
    parser.add_argument("--only", nargs="*", help="names of trainings")
    parser.add_argument("--output", type=Path, default=TRAININGS)
    options = parser.parse_args()
    found = dict(np.load(options.output)) if options.output.exists() else {}
    for name in options.only or [*(f"own_{kind}" for kind in OWN), *SCRIPTS]:
        if f"{name}/facts" in found:
            continue
        try:
            with tempfile.TemporaryDirectory() as folder:
                whole, epochs = record_whole(name, Path(folder), options.seconds)
        except (FlatoutError, ValueError, OSError) as error:
            print(f"{name}: left out: {' '.join(str(error).split())[:160]}", file=sys.stderr, flush=True)
            continue
        found |= {f"{name}/{key}": value for key, value in packed(whole, epochs).items()}
        np.savez_compressed(options.output, **found)
        print(
            f"{name}: {epochs} epochs, {len(whole)} steps, {whole.finish_s:.1f} s; load {os.getloadavg()[0]:.1f}",
            file=sys.stderr, flush=True,
        )  # fmt: skip


def record_whole(name: str, folder: Path, seconds: float) -> tuple[Timeline, int]:
    """A training from its start to its end, and the epochs that it was to make.

    Raises:
        ValueError: it cannot be run so, or did not end by itself.
    """
    if name.startswith("own_"):
        script, arguments = HERE / "several_epochs.py", [name.removeprefix("own_")]
    else:
        script = next((ROOT / "benchmarks/diagnosis").glob(f"*/{name}.py"))
        arguments = []
    text = script.read_text("utf-8")
    if not EPOCHS.search(text):
        raise ValueError("its number of epochs was not found")
    copy = folder / script.name
    look = _record(copy, EPOCHS.sub(r"\g<before>100000", text), arguments, Bounds(seconds=LOOK_S))
    counts = np.bincount(look.epoch)
    steps = int(counts[0]) if len(counts) > 1 else look.steps_per_epoch
    if steps is None:
        raise ValueError(f"no epoch ended within {LOOK_S:.0f} s")
    epoch_s = (look.end_s[-1] - look.end_s[0]) / (len(look) - 1) * steps
    epochs = min(max(round(seconds / epoch_s), LEAST_EPOCHS), MOST_EPOCHS)
    if epochs * epoch_s > MOST_S:
        raise ValueError(f"{epochs} epochs of {epoch_s:.0f} s are too long")
    whole = _record(copy, EPOCHS.sub(rf"\g<before>{epochs}", text), arguments, Bounds(full=True))
    if whole.finish_s is None:
        raise ValueError("it did not end by itself")
    return whole, epochs


def _record(copy: Path, text: str, arguments: list[str], bounds: Bounds) -> Timeline:
    copy.write_text(text, "utf-8")
    runs = copy.parent / "runs"
    with open(os.devnull, "w") as nothing, contextlib.chdir(copy.parent), contextlib.redirect_stdout(nothing):
        outcome = record([sys.executable, copy.name, *arguments], runs, bounds, quiet=True, stdout_to_stderr=True,
                         trace=False, experiments=False)  # fmt: skip
    try:
        return timeline_of(load_run(outcome.run))
    finally:
        shutil.rmtree(runs)


def packed(whole: Timeline, epochs: int) -> dict[str, np.ndarray]:
    """As the file keeps it: times in µs, each beginning after the one before."""
    facts = {
        "epochs": epochs,
        "finish_s": whole.finish_s,
        "steps_per_epoch": whole.steps_per_epoch,
        "fold_start_s": whole.fold_start_s,
    }
    return {
        "starts": np.diff(np.round(whole.start_s * 1e6).astype(np.int64), prepend=0).astype(np.uint32),
        "lengths": np.round((whole.end_s - whole.start_s) * 1e6).astype(np.uint32),
        "steps": np.bincount(whole.epoch).astype(np.uint32),
        "facts": np.array(json.dumps(facts)),
    }


def unpacked(file: dict[str, np.ndarray], name: str) -> tuple[Timeline, int]:
    """A recorded training, and the epochs that it was to make."""
    facts = json.loads(str(file[f"{name}/facts"]))
    start_s = np.cumsum(file[f"{name}/starts"].astype(np.int64)) / 1e6
    steps = file[f"{name}/steps"]
    epochs = facts.pop("epochs")
    epoch = np.repeat(np.arange(len(steps)), steps)
    return Timeline(start_s, start_s + file[f"{name}/lengths"] / 1e6, epoch, **facts), epochs


if __name__ == "__main__":
    main()
