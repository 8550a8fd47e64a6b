"""Trainings on small photographs: they learn, resume, stop, and leave what is promised."""

from __future__ import annotations

import csv
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from flatout.errors import TrainingFailed, UsageError
from flatout.recipes import trainer
from flatout.recipes.datasets import open_data
from flatout.recipes.fitting import fit
from flatout.recipes.image_pipeline import make_loader
from flatout.recipes.image_task import ImageTask
from flatout.recipes.lr_range import range_test
from flatout.recipes.models import build_model
from flatout.recipes.reading import read_recipe
from flatout.recipes.training import train_recipe
from tests.recipes.small_training import losses, quiet, recipe


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


@pytest.mark.slow
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
        TrainingFailed, match=r"the loss became nan at step 5 \(epoch 2\).*last good checkpoint is .*best-000.ckpt"
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


def test_the_last_epoch_is_scored_whatever_lies_between_validations(photographs: Path, tmp_path: Path) -> None:
    wanted = recipe(photographs, "training.epochs=5", "training.validate_every=3")
    done = fit(wanted, open_data(wanted), tmp_path / "run", report=quiet, show_progress=False)
    assert [record.epoch for record in done.records if "val/acc1" in record.metrics] == [2, 4]


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
