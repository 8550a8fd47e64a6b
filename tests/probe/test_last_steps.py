"""The last steps of a profile: they measure with kept batches, and nothing that they do reaches the script."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flatout.measure.last_steps import LastSteps, read_last_steps
from flatout.probe import events
from flatout.record import load_run
from flatout.runner import Bounds, record

SCRIPT = Path(__file__).parent / "scripts" / "last_steps.py"

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Ended:
    """A profile that has ended: what it measured, and what the script has left."""

    found: LastSteps
    info: dict[str, Any]
    printed: str
    folder: Path

    def left(self, name: str) -> str:
        return (self.folder / name).read_text()


def profiled(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str, **environment: str) -> Ended:
    """Profile the script as ``flatout profile --no-trace`` does; it ended as any bounded profile does."""
    monkeypatch.chdir(folder)
    with (folder / "printed").open("wb") as output:
        outcome = record(
            [sys.executable, str(SCRIPT), kind],
            folder / "runs",
            Bounds(steps=30, seconds=60.0),
            quiet=True,
            trace=False,
            experiments=True,
            environment={"OMP_NUM_THREADS": "1", **environment},
            output=output,
        )
    run = load_run(outcome.run)
    (process,) = [one for one in run.processes if len(one.of_kinds(events.BACKWARD))]
    assert (outcome.stop, outcome.exit_code, run.info["clean"], run.info["problems"]) == ("steps", None, True, [])
    assert "fault" not in process.info
    return Ended(read_last_steps(process), process.info, (folder / "printed").read_text(), folder)


@pytest.mark.serial
@pytest.mark.parametrize("kind", ["workers", "no_workers", "stream", "dict", "named", "in_place", "logs"])
def test_steps_are_measured_with_batches_as_they_came_and_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    ended = profiled(tmp_path, monkeypatch, kind)
    assert ended.found.skipped == {}
    assert ended.found.replayed is not None and ended.found.replayed.idle
    assert ended.found.doubled is not None and ended.found.doubled.samples == 4
    assert ended.found.loader_bps is not None
    if kind == "logs":  # up to the window's end, each step has its line
        lines = (tmp_path / "steps.csv").read_text().split()
        assert lines == [str(number) for number in range(1, len(lines) + 1)] and len(lines) > 50
    # The batches of a stream cannot be read again.
    assert (ended.found.again_bps is None) is (kind == "stream")
    assert ended.left("handler") == ended.left("epoch") == ended.printed == ""


@pytest.mark.parametrize(
    ("kind", "because"),
    [
        ("hidden", "it raised RuntimeError: The size of tensor a (8) must match the size of tensor b (4)"),
        ("loop_only", "it raised RuntimeError: The size of tensor a (4) must match the size of tensor b (8)"),
        ("unusual", "a batch holds a part of type int"),
        ("checkpoint", "it writes a checkpoint"),
        ("file", "it opens doubled.pkl to write"),
    ],
)
def test_a_training_that_cannot_take_twice_the_batch_notices_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, because: str
) -> None:
    ended = profiled(tmp_path, monkeypatch, kind)
    assert ended.found.doubled is None
    assert list(ended.found.skipped) == ["doubled"] and ended.found.skipped["doubled"].startswith(because)
    assert ended.found.replayed is not None and ended.found.loader_bps is not None
    assert ended.left("handler") == ended.left("epoch") == ended.printed == ""
    assert not list(tmp_path.glob("doubled.*"))


@pytest.mark.serial
def test_batches_that_end_in_padding_are_trimmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = profiled(tmp_path, monkeypatch, "padded")
    assert ended.found.skipped == {}
    assert ended.found.trimmed is not None and ended.found.doubled is not None
    assert ended.left("handler") == ended.left("epoch") == ended.printed == ""


def test_a_training_of_a_fixed_length_notices_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = profiled(tmp_path, monkeypatch, "fixed_length")
    assert ended.found.trimmed is None and ended.found.replayed is not None and ended.found.loader_bps is not None
    because = "it raised RuntimeError: The size of tensor a (8) must match the size of tensor b (32)"
    assert list(ended.found.skipped) == ["trimmed"] and ended.found.skipped["trimmed"].startswith(because)
    assert ended.left("handler") == ended.left("epoch") == ended.printed == ""


def test_the_end_of_a_pass_is_not_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # 16 batches to a pass: too few for any blocks. Passes before the last steps end as ever.
    ended = profiled(tmp_path, monkeypatch, "short")
    assert ended.found.replayed is None
    assert "batches of the pass were left" in ended.found.skipped["replayed"]
    assert ended.left("handler") == ended.printed == ""


def test_ranks_are_left_in_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = profiled(tmp_path, monkeypatch, "workers", WORLD_SIZE="2", RANK="0")
    assert ended.found.replayed is None
    assert ended.found.skipped["replayed"] == "2 ranks have to stay in step"
