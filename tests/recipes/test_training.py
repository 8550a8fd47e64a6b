"""Trainings on small photographs: they learn, resume, stop, and leave what is promised."""

from __future__ import annotations

import csv
import json
import math
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from flatout.errors import TrainingFailed, UnreadableImage, UsageError
from flatout.loader.interfaces import Sample
from flatout.measure.loader import build_loading
from flatout.measure.training import find_training
from flatout.recipes import trainer
from flatout.recipes.datasets import open_data, open_test
from flatout.recipes.fitting import fit, make_loader
from flatout.recipes.lr_range import range_test
from flatout.recipes.models import build_model
from flatout.recipes.predicting import find_trained, ids_of, predict
from flatout.recipes.reading import read_recipe
from flatout.recipes.task import ImageTask
from flatout.recipes.training import train_recipe
from flatout.record import load_run
from tests.loader.photographs import make_class_folders
from tests.recipes.small_training import TINY, losses, quiet, recipe


def test_a_fit_learns_and_leaves_checkpoints_metrics_recipe_and_classes(photographs: Path, tmp_path: Path) -> None:
    wanted = recipe(photographs, "training.epochs=3", "checkpoints.keep=2")
    done = fit(wanted, open_data(wanted), tmp_path / "run", report=quiet, show_progress=False)
    assert len(done.records) == 3 and done.stopped is None
    assert done.records[-1].metrics["train/loss"] < done.records[0].metrics["train/loss"]
    assert done.best is not None and done.last is not None
    assert len(list((tmp_path / "run").glob("best-*.ckpt"))) == 2
    assert read_recipe(str(tmp_path / "run/recipe.yaml")) == wanted
    assert json.loads((tmp_path / "run/classes.json").read_text()) == list(open_data(wanted).classes)
    assert len(losses(tmp_path / "run")) == 3 * (72 // 16)


class _AfterOne:
    planned_epochs = 4

    def resumed(self, records: object) -> str | None:
        return None

    def after_step(self, epoch: int, step: int) -> str | None:
        return None

    def after_epoch(self, record: object) -> str | None:
        return "enough"


@pytest.mark.slow
def test_a_resumed_fit_has_the_losses_of_an_uninterrupted_one_bit_for_bit(photographs: Path, tmp_path: Path) -> None:
    wanted = recipe(
        photographs, "training.epochs=4", "model.dropout=0.3", "training.mixup=0.2", "training.ema_decay=0.9"
    )
    data = open_data(wanted)
    fit(wanted, data, tmp_path / "whole", report=quiet, show_progress=False)
    first = fit(wanted, data, tmp_path / "parts", policies=[_AfterOne()], report=quiet, show_progress=False)
    assert first.stopped == "enough" and len(first.records) == 1
    torch.manual_seed(99)
    fit(wanted, data, tmp_path / "parts", resume=True, report=quiet, show_progress=False)
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")


@pytest.mark.slow
def test_a_fit_that_dies_inside_an_epoch_goes_on_there_with_the_same_losses(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = recipe(
        photographs,
        "training.epochs=3",
        "model.dropout=0.3",
        "training.ema_decay=0.9",
        "checkpoints.every_steps=1",
        "logging.every_steps=2",
    )
    data = open_data(wanted)
    whole = fit(wanted, data, tmp_path / "whole", report=quiet, show_progress=False)
    step = ImageTask.training_step

    def dying(self: ImageTask, batch: Any, batch_idx: int) -> Any:
        if self.current_epoch == 1 and batch_idx == 3:
            raise RuntimeError("the machine is gone")
        return step(self, batch, batch_idx)

    with monkeypatch.context() as patch:
        patch.setattr(ImageTask, "training_step", dying)
        with pytest.raises(RuntimeError, match="the machine is gone"):
            fit(wanted, data, tmp_path / "parts", report=quiet, show_progress=False)
    torch.manual_seed(99)
    seen: list[tuple[int, int]] = []

    def watched(self: ImageTask, batch: Any, batch_idx: int) -> Any:
        seen.append((self.current_epoch, batch_idx))
        return step(self, batch, batch_idx)

    monkeypatch.setattr(ImageTask, "training_step", watched)
    again = fit(wanted, data, tmp_path / "parts", resume=True, report=quiet, show_progress=False)
    assert seen == [(1, 3), *((2, place) for place in range(4))]
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    assert [r.metrics for r in again.records] == [r.metrics for r in whole.records]
    assert [r.steps for r in again.records] == [4, 4, 4]


def test_a_model_that_cannot_be_compiled_is_trained_without_and_the_reason_is_said(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor import config

    monkeypatch.setattr(config.cpp, "cxx", (None, "no-such-compiler"))
    monkeypatch.setattr(config, "force_disable_caches", True)
    said: list[str] = []
    wanted = recipe(photographs, "training.epochs=1", "training.compile=default")
    done = fit(wanted, open_data(wanted), tmp_path / "run", report=said.append, show_progress=False)
    assert done.records[0].steps == 4
    assert any("torch.compile failed, going on without it" in line for line in said)
    assert any("torch.compile failed" in note for note in done.notes)


def test_tensorboard_gets_the_metrics_under_their_names(photographs: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    wanted = recipe(photographs, "logging.tensorboard=true", "logging.every_steps=2")
    done = fit(wanted, open_data(wanted), tmp_path / "run", report=quiet, show_progress=False)
    events = EventAccumulator(str(next((tmp_path / "run").rglob("events.out*")).parent)).Reload()
    assert [e.value for e in events.Scalars("val/acc1")] == pytest.approx([r.metrics["val/acc1"] for r in done.records])
    assert len(events.Scalars("train/loss_step")) == 4


@pytest.mark.parametrize("more", [[], ["training.ema_decay=0.5"]])
def test_a_checkpoint_predicts_as_well_as_it_was_scored(photographs: Path, tmp_path: Path, more: list[str]) -> None:
    wanted = recipe(photographs, "training.epochs=2", "optimizer.lr=0.01", *more)
    data = open_data(wanted)
    done = fit(wanted, data, tmp_path / "run", report=quiet, show_progress=False)
    assert data.validation is not None and done.best_epoch is not None
    found = predict(find_trained(tmp_path / "run"), data.validation).probabilities.argmax(1)
    right = np.mean([place == sample.label for place, sample in zip(found, data.validation.samples, strict=True)])
    assert right == pytest.approx(done.metrics["val/acc1"])
    assert all(np.isfinite(r.metrics["val/loss"]) for r in done.records)


def test_derived_numbers_are_said_with_how_they_come_about(photographs: Path, tmp_path: Path) -> None:
    said: list[str] = []
    wanted = recipe(photographs, "training.epochs=1", "training.accumulate=2", "schedule.warmup_epochs=0")
    fit(wanted, open_data(wanted), tmp_path / "run", report=said.append, show_progress=False)
    text = "\n".join(said)
    assert "RESOURCES: " in text
    assert "batch: 32 = 16 × 2 accumulated images a step, 2 steps an epoch (⌈⌊72 / 16⌋ / 2⌉)" in text
    assert "(4 in flight + 1) × 16 × 32² × 3 bytes" in text
    assert "M parameters; memory " in text


def test_a_single_fit_with_a_deadline_has_a_submission_from_its_first_epoch_on(
    photographs: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    wanted = recipe(photographs, "training.epochs=3", "training.max_time=10m", "data.test=val")
    train_recipe(wanted, open_data(wanted), tmp_path / "run", report=said.append, show_progress=False)
    assert sum("images predicted by 1 model" in line for line in said) == 2
    assert (tmp_path / "run/submission.csv").is_file()
    used = json.loads((tmp_path / "run/deadline.json").read_text())["used_s"]
    assert used > 0


def test_a_deadline_too_short_for_one_step_is_said_with_the_time_of_the_step(photographs: Path, tmp_path: Path) -> None:
    wanted = recipe(photographs, "training.max_time=1ms")
    with pytest.raises(UsageError, match=r"too short for one step: the first one ended .* after the start"):
        train_recipe(wanted, open_data(wanted), tmp_path / "run", report=quiet, show_progress=False)


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
    assert (loading.settings.num_workers, loading.settings.batch_size, loading.delivery.batches) == (2, 16, 4 * 4 - 1)
    assert loading.fetch.cpu_s is not None and loading.fetch.cpu_s.sum() > 0
    assert loading.workers.idle_share is not None and 0 < loading.workers.idle_share < 1


def test_a_range_test_leaves_everything_as_it_was_bit_for_bit(photographs: Path) -> None:
    wanted = recipe(photographs, "model.dropout=0.2")
    data = open_data(wanted)
    model = build_model(wanted, 3).eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    torch.stack([p.sum() for p in model.parameters()]).sum().backward()
    optimizer.step()

    def everything(loader: Any) -> list[Any]:
        return [
            [value.clone() for value in model.state_dict().values()],
            [p.grad.clone() for p in model.parameters() if p.grad is not None],
            [state["momentum_buffer"].clone() for state in optimizer.state.values()],
            [torch.get_rng_state(), torch.tensor(np.random.get_state()[1].astype(np.int64))],
            [random.getstate(), loader.state_dict(), optimizer.param_groups[0]["lr"], model.training],
        ]

    with make_loader(wanted, data, True) as loader:
        coming = iter(loader)
        next(coming)
        del coming
        before = everything(loader)
        found = range_test(wanted, model, loader, 3, num_training=25, optimizer=optimizer)
        after = everything(loader)
    assert len(found.losses) >= 20
    for was, is_ in zip(before[:4], after[:4], strict=True):
        assert was and all(torch.equal(a, b) for a, b in zip(was, is_, strict=True))
    assert before[4] == after[4]


def test_memory_that_is_out_is_answered_by_a_smaller_batch_that_is_announced(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ImageTask.training_step

    def limited(self: ImageTask, batch: Any, batch_idx: int) -> Any:
        if len(batch) > 8:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return whole(self, batch, batch_idx)

    monkeypatch.setattr(ImageTask, "training_step", limited)
    said: list[str] = []
    wanted = recipe(photographs, "training.epochs=1")
    done = fit(wanted, open_data(wanted), tmp_path / "run", report=said.append, show_progress=False)
    assert done.records[0].steps == 9  # of 8
    assert any("batch size 16: going on with 12" in line for line in said)
    assert [note for note in done.notes if "going on with 8" in note]
    assert any("learning rate: 0.0005 = 0.002 × 8/32" in line for line in said)
    strict = recipe(photographs, "training.oom_fallback=false")
    with pytest.raises(TrainingFailed, match=r"smaller training\.batch_size"):
        fit(strict, open_data(strict), tmp_path / "other", report=quiet, show_progress=False)


def test_a_loss_that_is_no_number_ends_the_fit_with_the_last_good_checkpoint(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ImageTask.training_step

    def poisoned(self: ImageTask, batch: Any, batch_idx: int) -> Any:
        loss = whole(self, batch, batch_idx)
        if self.current_epoch == 1 and batch_idx == 1:
            self.losses[-1] = self.losses[-1] * float("nan")
        return loss

    monkeypatch.setattr(ImageTask, "training_step", poisoned)
    wanted = recipe(photographs)
    with pytest.raises(
        TrainingFailed, match=r"the loss became nan at step 5 \(epoch 1\).*last good checkpoint is .*best-000.ckpt"
    ):
        fit(wanted, open_data(wanted), tmp_path / "run", report=quiet, show_progress=False)
    assert (tmp_path / "run/last.ckpt").is_file()


def test_a_full_disk_at_a_checkpoint_leaves_the_earlier_ones(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = recipe(photographs)
    data = open_data(wanted)
    fit(wanted, data, tmp_path / "run", report=quiet, show_progress=False)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").glob("*.ckpt")}

    def full(content: object, file: Any) -> None:
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    longer = recipe(photographs, "training.epochs=3")
    with pytest.raises(TrainingFailed, match=r"\.ckpt: No space left on device: .* earlier ones are whole") as refused:
        fit(longer, data, tmp_path / "run", resume=True, allowed=["training.epochs"], report=quiet, show_progress=False)
    assert "\n" not in str(refused.value)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if "ckpt" in path.name} == before


@pytest.mark.slow
def test_predictions_are_probabilities_and_average_the_folds(photographs: Path, tmp_path: Path) -> None:
    wanted = recipe(photographs, "data.validation=null", "folds={count: 2}", "training.epochs=1")
    data = open_data(wanted)
    done = train_recipe(wanted, data, tmp_path / "run", report=quiet, show_progress=False)
    assert "val/acc1 mean" in done.metrics
    trained = find_trained(tmp_path / "run")
    assert len(trained) == 2
    both = predict(trained, data.train).probabilities
    assert both.shape == (72, 3) and np.allclose(both.sum(1), 1)
    each = [predict([one], data.train).probabilities for one in trained]
    assert np.allclose(both, (each[0] + each[1]) / 2)
    with (tmp_path / "run/out_of_fold.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 72
    other = recipe(make_class_folders(tmp_path / "fewer", 3, 20, 64), "data.validation=null", "folds={count: 2}")
    with pytest.raises(UsageError, match="a split of other images"):
        train_recipe(other, open_data(other), tmp_path / "run", report=quiet, show_progress=False)


def test_a_subset_has_the_same_class_indices_in_training_and_validation(photographs: Path) -> None:
    wanted = recipe(photographs, "data.classes=2", "data.subset_seed=7")
    data = open_data(wanted)
    assert len(data.classes) == 2 and data.validation is not None
    for source in (data.train, data.validation):
        assert {data.classes[s.label] for s in source.samples} == set(data.classes)
        assert all(s.key.startswith(data.classes[s.label]) for s in source.samples)


def test_the_last_epoch_is_scored_whatever_lies_between_validations(photographs: Path, tmp_path: Path) -> None:
    wanted = recipe(photographs, "training.epochs=5", "training.validate_every=3")
    done = fit(wanted, open_data(wanted), tmp_path / "run", report=quiet, show_progress=False)
    assert [record.epoch for record in done.records if "val/acc1" in record.metrics] == [2, 4]


def test_validation_images_that_folds_do_not_use_are_said(photographs: Path, tmp_path: Path) -> None:
    said: list[str] = []
    wanted = recipe(photographs, "folds={count: 2}", "training.epochs=1")
    train_recipe(wanted, open_data(wanted), tmp_path / "run", report=said.append, show_progress=False)
    assert sum("data.validation: val is not used" in line for line in said) == 1


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["training.batch_size=500"], "500 × 1 process.* is more than the 72 training images"),
        (["model.weights=nowhere.pth"], "nowhere.pth: no such file"),
        (["data.classes=9"], "data.classes 9: there are only 3 classes"),
        (["data.train=nowhere"], "no such folder"),
        (["data.format=packed"], "no whole packed set"),
    ],
)
def test_what_cannot_be_trained_is_one_clear_line(
    photographs: Path, tmp_path: Path, more: list[str], said: str
) -> None:
    wanted = recipe(photographs, *more)
    with pytest.raises(UsageError, match=said):
        fit(wanted, open_data(wanted), tmp_path / "run", report=quiet, show_progress=False)


def test_classes_of_validation_that_training_lacks_are_named(tmp_path: Path) -> None:
    root = make_class_folders(tmp_path, 3, 6, 64)
    (root / "val/rocket3").mkdir(parents=True)
    (root / "val/rocket3/1.jpg").write_bytes(b"")
    (root / "train/coffee2").rename(root / "moved")
    with pytest.raises(UsageError, match="classes that training does not have: coffee2, rocket3"):
        open_data(recipe(root))


def test_a_checkpoint_of_another_model_is_refused(photographs: Path, tmp_path: Path) -> None:
    wanted = recipe(photographs, "training.epochs=1")
    fit(wanted, open_data(wanted), tmp_path / "run", report=quiet, show_progress=False)
    other = recipe(photographs, "model.name=test_byobnet")
    with pytest.raises(UsageError, match=r'model.name was "test_resnet" and is "test_byobnet" now: this cannot change'):
        fit(other, open_data(other), tmp_path / "run", resume=True, report=quiet, show_progress=False)


def test_tensor_cores_are_allowed_as_the_recipe_says_where_there_is_a_gpu(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", asked.append)
    monkeypatch.setattr(trainer.pl, "Trainer", lambda **options: options)
    for tf32 in ("true", "false"):
        made: Any = trainer.build_trainer(
            recipe(photographs, f"training.tf32={tf32}"), tmp_path, None, show_progress=False, world=1
        )
        assert made["accelerator"] == "gpu" and made["precision"] == "bf16-mixed"
    assert asked == ["high", "highest"]


def test_images_that_cannot_be_predicted_have_equal_probabilities_and_the_rest_a_submission(
    photographs: Path, tmp_path: Path
) -> None:
    test = Path(shutil.copytree(photographs / "val", tmp_path / "test"))
    (test / "astronaut0/000.jpg").write_bytes(b"no image")
    wanted = recipe(photographs, f"data.test={test}", "data.id_column=image", "training.epochs=1")
    skipping = wanted.model_copy(update={"data": wanted.data.model_copy(update={"bad_files": "skip"})})
    said: list[str] = []
    run = tmp_path / "run"
    train_recipe(skipping, open_data(skipping), run, report=said.append, show_progress=False)
    with (run / "submission.csv").open(newline="") as file:
        rows = {row["image"]: row for row in csv.DictReader(file)}
    assert len(rows) == 24 and "astronaut0/000" in rows  # names alone are there once for each class
    bad = rows.pop("astronaut0/000")
    assert [float(value) for name, value in bad.items() if name != "image"] == pytest.approx([1 / 3] * 3, abs=1e-6)
    assert all(len({value for name, value in row.items() if name != "image"}) > 1 for row in rows.values())
    assert any("1 could not be decoded and have equal probabilities" in line for line in said)
    with pytest.raises(UnreadableImage, match=r"000\.jpg"):
        predict(find_trained(run), open_test(str(test)), skip_bad=False)
    mirrored = predict(find_trained(run), open_test(str(test)), mirrored=True).probabilities
    assert np.allclose(mirrored.sum(1), 1)


def test_ids_are_as_short_as_they_can_be_and_never_the_same() -> None:
    def ids(*keys: str) -> list[str]:
        return ids_of(SimpleNamespace(samples=[Sample(key, 0) for key in keys]))  # type: ignore[arg-type]

    assert ids("a/1.jpg", "b/2.jpg") == ["1", "2"]
    assert ids("a/1.jpg", "b/1.jpg") == ["a/1", "b/1"]
    assert ids("a/1.jpg", "a/1.png") == ["a/1.jpg", "a/1.png"]


def test_the_rate_of_each_step_is_noted_and_ends_with_the_last_epoch_whatever_is_accumulated(
    photographs: Path, tmp_path: Path
) -> None:
    settings = ["training.batch_size=14", "training.accumulate=4", "training.epochs=3", "schedule.warmup_epochs=0"]
    wanted = recipe(photographs, *settings)
    fit(wanted, open_data(wanted), tmp_path / "run", report=quiet, show_progress=False)
    with (tmp_path / "run/steps.csv").open(newline="") as file:
        rates = [float(row["lr"]) for row in csv.DictReader(file)]
    assert len(rates) == 3 * 5  # ⌊72 / 14⌋ batches: 4 of a whole step, and 1
    highest = 0.002 * 14 * 4 / 32
    shares = [0.5 * (1 + math.cos(math.pi * done / 3)) for epoch in range(3) for done in [epoch] * 4 + [epoch + 0.8]]
    assert rates == pytest.approx([highest * share for share in shares], rel=1e-4)


def test_a_subset_may_keep_the_indices_of_all_classes(photographs: Path, tmp_path: Path) -> None:
    wanted = recipe(photographs, "data.classes=2", "data.subset_seed=7", "data.keep_indices=true")
    data = open_data(wanted)
    assert data.classes == open_data(recipe(photographs)).classes and data.validation is not None
    for source, indices in ((data.train, data.train_indices), (data.validation, data.validation_indices)):
        kept = {data.classes[source.samples[index].label] for index in indices}
        assert len(kept) == 2 and all(
            source.samples[index].key.startswith(data.classes[source.samples[index].label]) for index in indices
        )
    order = tmp_path / "map.txt"
    order.write_text("rocket9\ncoffee2\nastronaut0\nchelsea1\n")
    mapped = open_data(recipe(photographs, f"data.class_map={order}"))
    assert mapped.classes == ("rocket9", "coffee2", "astronaut0", "chelsea1")
    assert {mapped.classes[s.label] for s in mapped.train.samples} == {"coffee2", "astronaut0", "chelsea1"}
    order.write_text("coffee2\nchelsea1\n")
    with pytest.raises(UsageError, match=r"classes that data\.class_map does not have: astronaut0"):
        open_data(recipe(photographs, f"data.class_map={order}"))


def test_an_absolute_part_of_the_data_stands_alone(photographs: Path, tmp_path: Path) -> None:
    wanted = recipe(tmp_path, f"data.train={photographs}/train", f"data.validation={photographs}/val")
    assert len(open_data(wanted).train_indices) == 72


def test_augmented_trainings_with_everything_on_learn(photographs: Path, tmp_path: Path) -> None:
    wanted = recipe(
        photographs,
        "images.policy=randaugment",
        "images.colour_jitter=0.3",
        "images.erasing=0.2",
        "images.repeats=2",
        "training.loss=bce",
        "training.bce_threshold=0.2",
        "training.mixup=0.1",
        "training.cutmix=1.0",
        "training.mix_mode=elem",
        "training.ema_decay=0.99",
        "training.ema_warmup=true",
        "training.validate_every=2",
        "optimizer.name=lamb",
        "schedule.name=poly",
    )
    done = fit(wanted, open_data(wanted), tmp_path / "run", report=quiet, show_progress=False)
    assert ["val/acc1" in record.metrics for record in done.records] == [False, True]
    assert done.best_epoch == 1 and all(math.isfinite(value) for value in done.metrics.values())
