#!/usr/bin/env python3
"""Records the whole trainings whose ends benchmarks/plans/run.py predicts: when each step began and ended.

Those of several_epochs.py and by_trainer.py are recorded until they end by themselves. The scripts of
benchmarks/diagnosis train for long, and are recorded for a while: the beginning of their last epoch then counts as the
end. Runs that flatout has recorded anyway, of whatever command, can be added.

Usage: python benchmarks/plans/record.py [--seconds S] [--only NAME ...] [--runs FOLDER ...] [--output FILE]
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
from dataclasses import replace
from pathlib import Path

import numpy as np

from flatout.errors import FlatoutError
from flatout.measure.training import find_training
from flatout.measure.usage import queued_share
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
LEAST_EPOCHS, LEAST_STEPS = 4, 60  # of a training that counts
ENDLESS, OWN_EPOCHS = 100_000, 30
# Of the demo's recipe: with smaller images, with smaller batches.
RECIPES = {
    "recipe_demo": ("--set", "images.size=48"),
    "recipe_demo_small_batches": ("--batch-size", "8", "--set", "images.size=32"),
}
OWN = (
    *("plain", "validated", "saved", "validated_and_saved", "cold", "uneven", "workers", "stopped"),
    *("bursty", "service", "validated_rarely", "longer_and_longer"),
)
BY_TRAINER = (
    "lightning",
    "lightning_validated",
    "lightning_saved",
    "huggingface",
    "huggingface_evaluated",
    "accelerate",
)
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
    parser.add_argument("--seconds", type=float, default=25.0, help="of a recording, from the first step")
    parser.add_argument("--only", nargs="*", help="names of trainings")
    parser.add_argument("--runs", nargs="*", type=Path, default=[], help="recorded before: take these, record none")
    parser.add_argument("--output", type=Path, default=TRAININGS)
    options = parser.parse_args()
    found = dict(np.load(options.output)) if options.output.exists() else {}
    before = {f"run_{folder.name[16:]}": folder for folder in options.runs}
    for name in (
        before
        or options.only
        or [
            *(f"own_{kind}" for kind in (*OWN, *BY_TRAINER)),
            *(f"own_{kind}_again" for kind in OWN),
            *RECIPES,
            *SCRIPTS,
        ]
    ):
        if f"{name}/facts" in found:
            continue
        try:
            if name in before:
                whole, kept = _whole(before[name], None)
            else:
                with tempfile.TemporaryDirectory() as folder:
                    whole, kept = record_whole(name, Path(folder), options.seconds)
        except (FlatoutError, ValueError, OSError) as error:
            print(f"{name}: left out: {' '.join(str(error).split())[:160]}", file=sys.stderr, flush=True)
            continue
        found |= {f"{name}/{key}": value for key, value in packed(whole, kept).items()}
        np.savez_compressed(options.output, **found)
        waited = "not measured" if kept["queued"] is None else f"{kept['queued']:.0%}"
        made = f"{whole.epoch[-1] + 1} epochs, {len(whole)} steps, {whole.finish_s:.1f} s"
        print(f"{name}: {made}; waited for a core {waited}", file=sys.stderr, flush=True)


def record_whole(name: str, folder: Path, seconds: float) -> tuple[Timeline, dict[str, float | None]]:
    """A training from its start to its end, and what else is kept of it.

    Raises:
        ValueError: it cannot be run so, or made too few epochs.
    """
    if name in RECIPES:
        command = [sys.executable, "-m", "flatout", "train", "demo", "--epochs", "1000", "--no-record", *RECIPES[name]]
        return _record([*command, "--output", str(folder / "training")], folder, Bounds(seconds=seconds), None)
    own = name.removeprefix("own_").removesuffix("_again")
    if name.startswith("own_"):
        script = HERE / ("by_trainer.py" if own in BY_TRAINER else "several_epochs.py")
        shutil.copy(HERE / "several_epochs.py", folder)
        shutil.copy(script, folder)
        command = [sys.executable, script.name, own, "--epochs", str(OWN_EPOCHS)]
        return _record(command, folder, Bounds(full=True), OWN_EPOCHS)
    script = next((ROOT / "benchmarks/diagnosis").glob(f"*/{name}.py"))
    text = script.read_text("utf-8")
    if not EPOCHS.search(text):
        raise ValueError("its number of epochs was not found")
    (folder / script.name).write_text(EPOCHS.sub(rf"\g<before>{ENDLESS}", text), "utf-8")
    return _record([sys.executable, script.name], folder, Bounds(seconds=seconds), None)


def _record(
    command: list[str], folder: Path, bounds: Bounds, epochs: int | None
) -> tuple[Timeline, dict[str, float | None]]:
    """``epochs``: that it was to make; None: those that it made."""
    with open(os.devnull, "w") as nothing, contextlib.chdir(folder), contextlib.redirect_stdout(nothing):
        outcome = record(command, folder / "runs", bounds, quiet=True, trace=False, experiments=False)
    return _whole(outcome.run, epochs)


def _whole(folder: Path, epochs: int | None) -> tuple[Timeline, dict[str, float | None]]:
    run = load_run(folder)
    whole = timeline_of(run)
    if whole.finish_s is None:
        # The last epoch was cut off: the ones before it are the training.
        last = np.flatnonzero(whole.epoch == whole.epoch[-1])[0]
        begins_s = float(whole.start_s[last])
        whole = replace(whole.until(begins_s), finish_s=begins_s)
    made = int(whole.epoch[-1]) + 1 if len(whole) else 0
    if made < LEAST_EPOCHS or len(whole) < LEAST_STEPS:
        raise ValueError(f"{made} epochs and {len(whole)} steps were recorded: too few")
    training = find_training(run)
    assert training is not None, "it has a timeline"
    queued = queued_share(run.system(), training.window_begin_ns, training.window_end_ns, training.process.pid)
    return whole, {"epochs": epochs or made, "queued": queued}


def packed(whole: Timeline, kept: dict[str, float | None]) -> dict[str, np.ndarray]:
    """As the file keeps it: times in µs, each beginning after the one before."""
    facts = {
        **kept,
        "finish_s": whole.finish_s,
        "steps_per_epoch": whole.steps_per_epoch,
        "fold_start_s": whole.fold_start_s,
    }
    return {
        "starts": np.diff(np.round(whole.start_s * 1e6).astype(np.int64), prepend=0).astype(np.uint32),
        "lengths": np.round((whole.end_s - whole.start_s) * 1e6).astype(np.uint32),
        "steps": np.bincount(whole.epoch).astype(np.uint32),
        "waits": whole.waits.astype(np.float32),
        "facts": np.array(json.dumps(facts)),
    }


def unpacked(file: dict[str, np.ndarray], name: str) -> tuple[Timeline, dict[str, float | None]]:
    """A recorded training; the epochs that it was to make, and the share of its time that it waited for a core."""
    facts = json.loads(str(file[f"{name}/facts"]))
    start_s = np.cumsum(file[f"{name}/starts"].astype(np.int64)) / 1e6
    steps = file[f"{name}/steps"]
    kept = {key: facts.pop(key) for key in ("epochs", "queued")}
    epoch = np.repeat(np.arange(len(steps)), steps)
    waits = file[f"{name}/waits"].astype(float) if f"{name}/waits" in file else np.zeros((0, 2))
    return Timeline(start_s, start_s + file[f"{name}/lengths"] / 1e6, epoch, waits=waits, **facts), kept


if __name__ == "__main__":
    main()
