"""What `flatout plan -- COMMAND` leaves: a plan and a recording, and no file of the training that it ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TRAINING = """
import time, torch
from torch import nn

model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for epoch in range(1000):
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        time.sleep(0.02)
    torch.save(model.state_dict(), "best.pt")
    open("log.txt", "a").write(f"{epoch}\\n")
"""


@pytest.mark.slow
def test_a_look_replaces_no_file_of_a_whole_training(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "best.pt").write_text("of the whole training")
    words = [
        "plan",
        "--deadline",
        "1m",
        "--epochs",
        "30",
        "--steps-per-epoch",
        "10",
        "--look",
        "3s",
        "--",
        sys.executable,
        "train.py",
    ]
    done = subprocess.run([sys.executable, "-m", "flatout", *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "asked for" in done.stdout
    assert (tmp_path / "best.pt").read_text() == "of the whole training"
    assert {path.name for path in tmp_path.iterdir()} == {"train.py", "best.pt", ".flatout"}
    (run,) = (path for path in (tmp_path / ".flatout/runs").iterdir() if path.name != ".lock")
    assert run.name.endswith("-train")
