"""The train command on small photographs: killed, interrupted, of several ranks, recorded, against a deadline."""

from __future__ import annotations

import csv
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flatout.measure.loader import build_loading
from flatout.measure.training import find_training
from flatout.record import load_run
from tests.recipes.small_training import TINY, losses

COMMAND = [sys.executable, "-m", "flatout", "train", "demo", "--no-record", "--quiet"]


def settings(photographs: Path, *more: str) -> list[str]:
    return [word for text in (*TINY, f"data.root={photographs}", *more) for word in ("--set", text)]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_killed_and_resumed_the_command_gives_the_same_losses(photographs: Path, tmp_path: Path) -> None:
    rest = settings(photographs, "training.epochs=5")
    run(*COMMAND, *rest, "-o", str(tmp_path / "whole"))
    part = tmp_path / "parts"
    with subprocess.Popen(
        [*COMMAND, *rest, "-o", str(part)],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as child:
        while not (part / "last.ckpt").is_file():
            assert child.poll() is None
            time.sleep(0.02)
        child.send_signal(signal.SIGKILL)
    again = run(*COMMAND, *rest, "-o", str(part), "--resume", "--json")
    assert json.loads(again.stdout)["epochs"] == 5
    assert losses(part) == losses(tmp_path / "whole")


@pytest.mark.slow
def test_stopped_with_ctrl_c_it_says_how_to_go_on(photographs: Path, tmp_path: Path) -> None:
    rest = settings(photographs, "training.epochs=500")
    child = subprocess.Popen(
        [*COMMAND, *rest, "-o", str(tmp_path / "run")], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    while not (tmp_path / "run/last.ckpt").is_file():
        assert child.poll() is None
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    said = child.communicate()[1]
    assert child.returncode == 130
    assert "Traceback" not in said
    command = next(line for line in said.splitlines() if line.startswith("flatout train demo"))
    assert shlex.split(command)[3:] == [*rest, "--no-record", "--quiet", "--output", f"{tmp_path}/run", "--resume"]


@pytest.mark.slow
def test_two_ranks_train_like_one_process_with_the_same_global_batch(photographs: Path, tmp_path: Path) -> None:
    # A model without batch statistics: those would be of half a batch on each rank.
    plain = ["model.name=test_vit", "images.size=64", "training.epochs=1", "optimizer.lr=0.0005"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "--no-python"]
    run(*torchrun, *COMMAND, *settings(photographs, *plain, "training.batch_size=8"), "-o", str(tmp_path / "two"))
    run(*COMMAND, *settings(photographs, *plain, "training.batch_size=16"), "-o", str(tmp_path / "one"))
    # Every second image of one order is the other rank's: the global batches hold the same images.
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=2e-3)


@pytest.mark.serial
def test_a_deadline_is_kept_for_real_and_leaves_a_submission(photographs: Path, tmp_path: Path) -> None:
    rest = settings(photographs, "training.epochs=400", "data.validation=null", "data.test=val", "folds={count: 3}")
    began = time.monotonic()
    done = run(*COMMAND, *rest, "-o", str(tmp_path / "run"), "--max-time", "30s", "--json")
    print(f"deadline 30 s, ended after {time.monotonic() - began:.1f} s")
    with (tmp_path / "run/submission.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 8
    assert all(sum(float(value) for name, value in row.items() if name != "id") == pytest.approx(1) for row in rows)
    assert "deadline" in done.stderr


@pytest.mark.slow
def test_a_training_records_itself_and_its_loaders_threads_are_read_as_workers(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recorded = [word for word in COMMAND if word != "--no-record"]
    run(*recorded, *settings(photographs, "images.backend=threads", "images.workers=2", "training.epochs=4"))
    record = load_run(next((tmp_path / ".flatout/runs").glob("*/run.json")).parent)
    training = find_training(record)
    loading = build_loading(record, training)
    assert loading is not None
    assert {"train/loss_step", "val/loss"} <= {name for process in record.processes for name, _ in process.metrics()}
    assert (loading.settings.num_workers, loading.settings.batch_size, loading.delivery.batches) == (2, 16, 4 * 4 - 1)
    assert loading.fetch.cpu_s is not None and loading.fetch.cpu_s.sum() > 0
    assert loading.workers.idle_share is not None and 0 < loading.workers.idle_share < 1
