"""Checkpoints and metrics less often, and metrics without waiting for the disk."""

import io
import os
import sys
import types
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from flatout.probe.injections import optimizer, writing
from tests.probe.test_injected_loader import Injected


def test_every_third_write_of_a_file_that_is_there_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "save", torch.save)
    injected = Injected(checkpoint_every=3)
    writing.install(injected, None)
    kept = []
    for step in range(7):
        torch.save({"step": step}, tmp_path / "last.pt")
        kept.append(torch.load(tmp_path / "last.pt")["step"])
        torch.save({"step": step}, str(tmp_path / "made.tmp"))
        os.replace(tmp_path / "made.tmp", tmp_path / "made.pt")
        assert torch.load(tmp_path / "made.pt")["step"] == step
        torch.save({"step": step}, tmp_path / f"{step}.pt")
        stream = io.BytesIO()
        torch.save({"step": step}, stream)
        assert stream.tell()
    assert kept == [0, 0, 0, 3, 3, 3, 6]
    assert {path.stem for path in tmp_path.iterdir()} == {"last", "made", *map(str, range(7))}
    assert injected.applied == ["checkpoint_every"] * 4


def test_every_second_metric_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []

    class Writer:
        def add_scalar(self, *values: Any) -> None:
            written.append(values)

        def flush(self) -> None:
            written.append("flush")

    module = types.ModuleType("board")
    module.Writer = Writer  # type: ignore[attr-defined]
    targets = (("Writer.add_scalar",), ("Writer.flush",), ("Gone.add_scalar",))
    monkeypatch.setattr(writing, "METRIC_WRITERS", {"board": targets})
    waiting: dict[str, Any] = {}
    writing.install(Injected(log_every=2), waiting.__setitem__)
    waiting["board"](module)
    board = Writer()
    for step in range(4):
        board.add_scalar("loss", step)
        board.flush()
    assert [each for each in written if each != "flush"] == [("loss", 0), ("loss", 2)]
    assert written.count("flush") == 4
    assert "board" not in sys.modules


@pytest.mark.parametrize("name", ["fsync", "fdatasync"])
def test_only_metric_files_are_left_to_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, name, lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    injected = Injected(metrics_unsynced=True)
    writing.install(injected, None)
    logs = [open(tmp_path / file, "w") for file in ("metrics.JSONL", "losses.csv", "model.pt", "state")]  # noqa: SIM115
    for step in range(6):
        for stream in logs:
            stream.write("0.5\n")
            stream.flush()
            getattr(os, name)(stream.fileno())
        for file in (f"labels-{step}.csv", "progress.json"):  # once each; the same size each time
            with open(tmp_path / file, "w") as stream:
                stream.write(str(step))
                stream.flush()
                getattr(os, name)(stream.fileno())
    for stream in logs:
        stream.close()
    counts = Counter(Path(path).name for path in synced)
    assert {file: count for file, count in counts.items() if not file.startswith("labels")} == {
        "metrics.JSONL": 3, "losses.csv": 3, "model.pt": 6, "state": 6, "progress.json": 6,
    }  # fmt: skip
    assert sum(file.startswith("labels") for file in counts) == 6
    assert set(injected.applied) == {"metrics_unsynced"}


def test_a_closed_file_raises_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", os.fsync)
    writing.install(Injected(metrics_unsynced=True), None)
    with open(tmp_path / "metrics.csv", "w") as stream:
        os.fsync(stream)  # type: ignore[arg-type]  # an object with fileno
    with pytest.raises(ValueError, match="closed"):
        os.fsync(stream)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fsync(10_000)


def test_a_fused_momentum_begins_at_zero() -> None:
    weight, other = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(2))
    descent = torch.optim.SGD([weight, other], lr=0.1, momentum=0.9)
    weight.grad = torch.ones(3)
    optimizer._begin_momentum(descent, (), {})
    assert descent.state[weight]["momentum_buffer"].tolist() == [0.0, 0.0, 0.0]
    assert other not in descent.state or "momentum_buffer" not in descent.state[other]
    descent.state[weight]["momentum_buffer"].fill_(2.0)
    optimizer._begin_momentum(descent, (), {})
    assert descent.state[weight]["momentum_buffer"].tolist() == [2.0, 2.0, 2.0]
