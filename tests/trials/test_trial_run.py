"""One run of a trial on a real script: losses, settings, and every way in which it does not count."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from flatout.errors import Interrupted
from flatout.runner import Bounds, Outcome
from flatout.runner.live import Live
from flatout.trials import trial_run
from flatout.trials.isolation import REDIRECTED, Isolation, find_isolation
from flatout.trials.outcome import FAILED, GUARDED, OK, OUT_OF_MEMORY, REFUSED, TrialRun
from flatout.trials.trial_run import TrialSetup, run_once
from tests.end_to_end.profiling import script

pytestmark = pytest.mark.slow

TRAIN = """
    import sys
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    torch.manual_seed(0)
    net = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    data = TensorDataset(torch.rand(100_000, 8))
    open("note.txt", "w").write("by a trial")
    for step, (x,) in enumerate(DataLoader(data, 16)):
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 40 and len(sys.argv) > 1:
            raise eval(sys.argv[1])
"""


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TrialSetup]:
    monkeypatch.chdir(tmp_path)
    path = script(tmp_path, TRAIN)

    def make(*words: str, isolation: Isolation | None = None) -> TrialSetup:
        found = isolation or find_isolation(tmp_path / "fix")
        command = (sys.executable, str(path), *words)
        return TrialSetup(command, tmp_path / "fix", tmp_path / "runs", Bounds(steps=200, seconds=30), found)

    return make


UNSEEDED = """
    import random
    import numpy as np
    import torch
    net = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    words = list({f"word {n}" for n in range(100)})
    generator, old = np.random.default_rng(), np.random.RandomState()
    for _ in range(60):
        shift = random.random() + np.random.rand() + generator.random() + old.rand() + words.index("word 7") / 100
        loss = (net(torch.rand(16, 8)) - shift).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_of_one_seed_all_is_drawn_that_a_training_leaves_to_chance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    command = (sys.executable, str(script(tmp_path, UNSEEDED)))
    bounds, isolation = Bounds(steps=50, seconds=30), find_isolation(tmp_path / "fix")
    setup = TrialSetup(command, tmp_path / "fix", tmp_path / "runs", bounds, isolation)
    first, again, other, free = (
        run_once(replace(setup, seed=seed), {}).losses[:40] for seed in (3, 3, 4, None)
    )  # fmt: skip
    assert len(first) == 40 and first == again
    assert first != other and first != free


def test_it_counts_with_speed_and_the_same_losses_each_time(setup: Callable[..., TrialSetup], tmp_path: Path) -> None:
    first, second = run_once(setup(), {}), run_once(setup(), {"tf32": False})
    assert first.outcome == second.outcome == OK, (first.detail, second.detail)
    count = min(len(first.losses), len(second.losses))
    assert count > 100 and first.losses[:count] == second.losses[:count]
    assert first.speed is not None and first.speed.rate > 0 and second.changed == {"tf32": False}
    assert not (tmp_path / "note.txt").exists()
    assert not list((tmp_path / "fix").glob("scratch-*"))


def test_redirected_writes_keep_the_folder_as_it_was(
    setup: Callable[..., TrialSetup], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "fix"))  # the real temporary folder stays real, and this one is in it
    found = run_once(setup(isolation=Isolation(REDIRECTED, "a test")), {})
    assert found.outcome == OK, found.detail
    assert not (tmp_path / "note.txt").exists()


@pytest.mark.parametrize(
    ("words", "settings", "outcome", "told"),
    [
        (("MemoryError('no more')",), {}, OUT_OF_MEMORY, "MemoryError: no more"),
        (("ValueError('bad data')",), {}, FAILED, "ValueError: bad data"),
        ((), {"prefetch_factor": 4}, REFUSED, "prefetch_factor: there are no workers: set num_workers too"),
        ((), {"jpeg_short_side": 256}, REFUSED, "nothing in this training takes it"),
    ],
)
def test_a_run_that_does_not_count_says_why(
    setup: Callable[..., TrialSetup], words: tuple[str, ...], settings: dict[str, int], outcome: str, told: str
) -> None:
    found: TrialRun = run_once(setup(*words), settings)
    assert found.outcome == outcome, found.detail
    assert told in found.detail and found.speed is None


def test_a_guard_ends_the_run(setup: Callable[..., TrialSetup], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_run.Guard, "look", lambda self: "out of memory ahead: a test")
    found = run_once(replace(setup(), bounds=Bounds(full=True)), {})  # nothing else ends it before the data
    assert found.outcome == GUARDED and found.detail == "out of memory ahead: a test"


def test_a_signal_that_comes_while_the_command_is_being_ended_ends_the_trials(
    setup: Callable[..., TrialSetup], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    outcome = Outcome(tmp_path / "run", "seconds", None, Live(), late_signal=signal.SIGTERM)
    monkeypatch.setattr(trial_run, "_recorded", lambda *_: (outcome, ()))
    with pytest.raises(Interrupted) as raised:
        run_once(setup(), {})
    assert raised.value.number == signal.SIGTERM and not (tmp_path / "run").exists()
