"""Checkpoint files: whole or not there, chosen by score, checked when read."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from flatout.cli import main
from flatout.errors import DamagedCheckpoint, TrainingFailed
from flatout.recipes.checkpoints import LAST, Checkpoints, WholeFiles, kept_checkpoints, ranked, read_checkpoint
from flatout.recipes.datasets import save_classes
from flatout.recipes.interfaces import EpochRecord
from flatout.recipes.reading import save_recipe
from tests.recipes.small_training import recipe as small_recipe

CONTENT = {"state_dict": {"weight": torch.arange(200_000.0)}, "epoch": 3}


def record(epoch: int, **metrics: float) -> EpochRecord:
    named = {name.replace("_", "/"): value for name, value in metrics.items()}
    return EpochRecord(
        epoch=epoch, steps=1, samples=1, metrics=named, train_s=1, wait_s=0, validation_s=0, checkpoint_s=0
    )


@pytest.fixture
def small_files_only() -> Iterator[None]:
    """The system refuses what lies beyond 300 kB of a file, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_checkpoint_that_does_not_fit_leaves_the_old_one_and_nothing_else(
    tmp_path: Path, small_files_only: None
) -> None:
    path = tmp_path / "last.ckpt"
    path.write_bytes(b"the old one")
    with pytest.raises(TrainingFailed, match=r"last\.ckpt: File too large: the checkpoint could not be written"):
        WholeFiles().save_checkpoint(CONTENT, path)
    assert path.read_bytes() == b"the old one" and os.listdir(tmp_path) == ["last.ckpt"]


def test_a_checkpoint_is_written_beside_its_name_and_renamed_when_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "last.ckpt", []
    rename = os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: seen.append("synced"))

    def renamed(old: Path, new: Path) -> None:
        seen.append("renamed")
        assert Path(old).parent == tmp_path and new == path and not path.exists()
        rename(old, new)

    monkeypatch.setattr(os, "replace", renamed)
    WholeFiles().save_checkpoint(CONTENT, path)
    assert seen == ["synced", "renamed"]
    assert torch.equal(read_checkpoint(path)["state_dict"]["weight"], CONTENT["state_dict"]["weight"])


def damaged(whole: bytes) -> dict[str, bytes]:
    middle = len(whole) // 2
    return {
        "empty": b"",
        "half": whole[:middle],
        "without its end": whole[:-10],
        "changed": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
        "text": b"hello " * 100,
    }


@pytest.mark.parametrize("how", list(damaged(b"0123456789abc")))
def test_a_damaged_checkpoint_is_one_line(how: str, tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    WholeFiles().save_checkpoint(CONTENT, path)
    path.write_bytes(damaged(path.read_bytes())[how])
    with pytest.raises(DamagedCheckpoint, match=r"last\.ckpt: (is empty|is no whole checkpoint|damaged)") as refused:
        read_checkpoint(path)
    assert "\n" not in str(refused.value)


def test_a_file_of_another_program_is_no_checkpoint(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(3)}, tmp_path / "weights.ckpt")
    with pytest.raises(DamagedCheckpoint, match="no checkpoint of a training"):
        read_checkpoint(tmp_path / "weights.ckpt")
    with pytest.raises(DamagedCheckpoint, match="is missing"):
        read_checkpoint(tmp_path / "nowhere.ckpt")


def test_the_best_come_first_the_earlier_of_equals_and_what_is_no_number_never() -> None:
    scores = [0.5, 0.7, float("nan"), 0.7]
    by_accuracy = ranked([record(n, val_acc1=score) for n, score in enumerate(scores)], "val/acc1")
    assert [r.epoch for r in by_accuracy] == [1, 3, 0]
    by_loss = ranked([record(n, val_loss=score) for n, score in enumerate(scores)], "val/loss")
    assert [r.epoch for r in by_loss] == [0, 1, 3]


def save(folder: Path, records: list[EpochRecord], keep: int) -> None:
    """What the callback does after the last of the epochs."""
    trainer: Any = SimpleNamespace(
        current_epoch=records[-1].epoch, is_global_zero=True, save_checkpoint=lambda path: path.write_bytes(b"state")
    )
    books = SimpleNamespace(records=records)
    Checkpoints(books, folder, "val/acc1", keep, 0).on_train_epoch_end(trainer, None)


def test_exactly_the_best_and_the_last_are_kept_whenever_the_process_was_killed(tmp_path: Path) -> None:
    records = [record(n, val_acc1=score) for n, score in enumerate((0.1, 0.3, 0.2, 0.5, 0.4))]
    (tmp_path / "best-mine.ckpt").write_bytes(b"the user's")
    for count in range(1, 6):
        save(tmp_path, records[:count], 2)
        save(tmp_path, records[:count], 2)  # killed after the checkpoint: the epoch is trained again
    assert sorted(os.listdir(tmp_path)) == ["best-003.ckpt", "best-004.ckpt", "best-mine.ckpt", "last.ckpt"]
    assert [path.name for path in kept_checkpoints(tmp_path)] == ["last.ckpt", "best-004.ckpt", "best-003.ckpt"]


class Malicious:
    """Runs code when it is unpickled without care."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.trace}",)


@pytest.mark.parametrize("legacy", [False, True])
def test_code_in_a_checkpoint_or_in_weights_is_never_run(
    legacy: bool,
    tmp_path: Path,
    photographs: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    trace, run = tmp_path / "trace", tmp_path / "run"
    run.mkdir()
    wanted = small_recipe(photographs)
    save_recipe(wanted, run)
    save_classes(run, ("a", "b", "c"))
    content = {"state_dict": {"model.weight": torch.zeros(2)}, "flatout": Malicious(trace)}
    torch.save(content, run / LAST, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(DamagedCheckpoint, match=r"last\.ckpt: is no whole checkpoint"):
        read_checkpoint(run / LAST)
    for words in (
        ["infer", str(run), "--data", str(photographs / "val"), "--output", str(tmp_path / "out.csv")],
        ["infer", str(run / LAST), "--data", str(photographs / "val"), "--output", str(tmp_path / "out.csv")],
        ["train", str(run / "recipe.yaml"), "--output", str(run), "--resume", "--no-record"],
        ["train", str(run / "recipe.yaml"), "--no-record", "--set", f"model.weights={run / LAST}"],
    ):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert "last.ckpt" in said.splitlines()[-1] and "Traceback" not in said
    assert not trace.exists()
