"""``with flatout.watch():`` records the block, and says how it ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import flatout
from flatout.diagnosis import diagnose
from flatout.record import list_runs, load_run

LOOP = """
import sys
import torch
import flatout

ending = sys.argv[1]
data = torch.utils.data.TensorDataset(torch.randn(400, 8), torch.randn(400, 1))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
with flatout.watch("runs", name="mine") as run:
    print(run, flush=True)
    for step, (x, y) in enumerate(torch.utils.data.DataLoader(data, 8)):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        if step == 30 and ending != "finished":
            raise {"failed": RuntimeError("planted"), "interrupted": KeyboardInterrupt()}[ending]
if ending == "again":
    with flatout.watch("runs"):
        pass
"""


def ended(folder: Path, ending: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "loop.py").write_text(LOOP)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(
        [sys.executable, "loop.py", ending], cwd=folder, env=environment, capture_output=True, text=True, timeout=250
    )


TWICE = """
import flatout

with flatout.watch("runs", name="first"):
    pass
try:
    with flatout.watch("others", name="second"):
        print("recorded")
except flatout.FlatoutError as error:
    print(error)
"""


def test_a_second_recording_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", TWICE], cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert "can be watched once" in done.stdout
    assert not (tmp_path / "others").exists()
    (entry,) = list_runs(tmp_path / "runs")
    assert not (entry.path / "reserve").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "code"), [("finished", 0), ("failed", 1), ("interrupted", 130)])
def test_the_block_is_recorded_with_its_steps_and_its_end(tmp_path: Path, ending: str, code: int) -> None:
    done = ended(tmp_path, ending)
    (entry,) = list_runs(tmp_path / "runs")
    run = load_run(entry.path)
    assert done.stdout.strip() == str(entry.path)
    assert entry.path.name.endswith("mine")
    assert (run.info["stop"], run.info["exit_code"], run.info["clean"]) == (ending, code, True)
    diagnosis = diagnose(run)
    assert diagnosis.ledger is not None
    assert diagnosis.ledger.steps.count >= 28
    assert diagnosis.ledger.steps.samples == 8 * diagnosis.ledger.steps.count
    # The exception is the user's own, with its own exit code and traceback.
    assert ("RuntimeError: planted" in done.stderr) == (ending == "failed")


@pytest.mark.slow
def test_below_a_profile_the_block_records_nothing_of_its_own(tmp_path: Path) -> None:
    done = ended(tmp_path, "finished", FLATOUT_RUN=str(tmp_path / "elsewhere"))
    assert (done.returncode, done.stdout.strip()) == (0, "None")
    assert not (tmp_path / "runs").exists()


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLATOUT_RUN", raising=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(flatout.UsageError) as caught, flatout.watch(tmp_path / "file" / "runs"):
        pytest.fail("the block was entered")
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "file") in str(caught.value)


def test_the_environment_is_as_it_was_after_a_watch_that_could_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLATOUT_RUN", raising=False)
    before = dict(os.environ)
    (tmp_path / "file").write_text("")
    with pytest.raises(flatout.UsageError), flatout.watch(tmp_path / "file"):
        pytest.fail("the block was entered")
    assert dict(os.environ) == before
