"""What a training shows while it runs, and small parts that only whole trainings call otherwise."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flatout.recipes import demo_data
from flatout.recipes.checkpoints import WholeFiles
from flatout.recipes.lr_range import RangeTest, terminal_plot
from flatout.recipes.progress import ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> str:
    """One epoch of ten steps, as the callback sees it."""
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("flatout.recipes.progress.REFRESH_S", 0.0)
    monkeypatch.setenv("COLUMNS", "120")
    record = SimpleNamespace(
        epoch=0, metrics={"val/acc1": 0.25, "loss": 1.5, "lr": 0.1}, samples=80, train_s=2.0, wait_s=0.5
    )
    history = SimpleNamespace(records=[record], clock=SimpleNamespace(wait_s=0.0))
    trainer: Any = SimpleNamespace(callbacks=[history], num_training_batches=10, current_epoch=0, world_size=1)
    task = SimpleNamespace(planned_epochs=2)
    line = ProgressLine(SimpleNamespace(training=SimpleNamespace(batch_size=8)))
    line.on_train_epoch_start(trainer, task)
    for batch in range(10):
        line.on_train_batch_end(trainer, task, None, None, batch)
    line.on_train_epoch_end(trainer, task)
    line.teardown(trainer, task, "fit")
    return stream.getvalue()


def test_without_a_terminal_there_is_a_line_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, io.StringIO()) == "epoch 1/2  loss 1.500  val/acc1 25.0%  40 samples/s  wait 25%\n"


def test_on_a_terminal_a_line_moves_and_the_epochs_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, Terminal())
    assert "epoch 1/2  loss 1.500  val/acc1 25.0%  40 samples/s  wait 25%" in text
    assert "samples/s" in text and "left" in text


def test_a_learning_rate_range_is_drawn_in_characters() -> None:
    lrs = tuple(10 ** (-5 + step / 10) for step in range(40))
    losses = tuple(2.0 - 0.03 * step if step < 30 else 1.1 + 0.2 * (step - 30) for step in range(40))
    fields = {"lrs": lrs, "losses": losses, "smoothed": losses, "suggestion": lrs[20]}
    known = {name: fields.get(name) for name in RangeTest.__dataclass_fields__}
    text = terminal_plot(RangeTest(**known))  # type: ignore[arg-type]
    assert "smoothed training loss" in text and "log10 of the learning rate" in text
    assert "\x1b" not in text and max(map(len, text.splitlines())) <= 80


def test_the_demo_gets_its_data_once_and_no_pixel_is_in_both_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("skimage")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(demo_data, "TRAIN", 2)
    monkeypatch.setattr(demo_data, "VALIDATION", 1)
    monkeypatch.setattr(demo_data, "PHOTOGRAPHS", ("coins", "astronaut"))
    recipe: Any = SimpleNamespace(data=SimpleNamespace(root=None))
    assert demo_data.needs_demo_data("demo", recipe) and not demo_data.needs_demo_data("mine.yaml", recipe)
    root = demo_data.make_demo_data(demo_data.demo_data_folder())
    assert root == tmp_path / "flatout" / "demo-classes"
    assert len(list(root.glob("train/*/*.jpg"))) == 4 and len(list(root.glob("val/*/*.jpg"))) == 2
    before = sorted((path, path.stat().st_mtime_ns) for path in root.rglob("*"))
    assert demo_data.make_demo_data(demo_data.demo_data_folder()) == root
    assert sorted((path, path.stat().st_mtime_ns) for path in root.rglob("*")) == before
    assert [path.name for path in (tmp_path / "flatout").iterdir()] == ["demo-classes"]


def test_a_checkpoint_is_removed_also_when_it_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    path.write_bytes(b"x")
    for _ in range(2):
        WholeFiles().remove_checkpoint(path)
        assert not path.exists()
