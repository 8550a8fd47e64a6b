"""``flatout.lightning.FlatoutCallback`` records a fit, and how it ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flatout.diagnosis import diagnose
from flatout.record import list_runs, load_run

pytestmark = pytest.mark.slow

FIT = """
import sys, warnings
warnings.simplefilter("ignore")
import pytorch_lightning as pl
import torch
from flatout.lightning import FlatoutCallback

ending = sys.argv[1]

class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        if index == 30 and ending == "fails":
            raise RuntimeError("planted")
        if index == 30 and ending == "Ctrl-C":
            raise KeyboardInterrupt
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)

callback = FlatoutCallback("runs")
assert callback.run is None
trainer = pl.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
                     enable_progress_bar=False, enable_model_summary=False, callbacks=[callback])
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(160, 8)), 4)
try:
    trainer.fit(Net(), loader)
finally:
    print("run:", callback.run)
"""


def fit(folder: Path, ending: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", FIT, ending], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ending", "stop", "exit_code"), [("ends", "finished", 0), ("fails", "failed", 1), ("Ctrl-C", "interrupted", 130)]
)
def test_a_fit_is_recorded_with_its_steps_and_its_end(tmp_path: Path, ending: str, stop: str, exit_code: int) -> None:
    done = fit(tmp_path, ending)
    assert (done.returncode == 0) is (ending == "ends"), done.stderr
    (entry,) = list_runs(tmp_path / "runs")
    assert done.stdout == f"run: {tmp_path / 'runs' / entry.id}\n"
    assert (entry.ending.stop, entry.ending.exit_code) == (stop, exit_code)
    run = load_run(tmp_path / "runs" / entry.id)
    ledger = diagnose(run).ledger
    assert ledger is not None and ledger.steps.count > 20
    assert not any("not closed" in problem for problem in run.problems)


def test_below_flatout_profile_the_fit_is_not_recorded_twice(tmp_path: Path) -> None:
    done = fit(tmp_path, "ends", FLATOUT_RUN=str(tmp_path / "profiled"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "run: None\n" and not (tmp_path / "runs").exists()
