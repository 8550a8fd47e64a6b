"""Ceilings of an unchanged script: replayed batches, and the data path alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.profiling import FLATOUT, TIMEOUT_S, script

# A sample waits 4 ms, a step of 8 samples computes 8 ms: 32 ms of data path, one worker.
TRAIN = """
    import time
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset):
        def __len__(self):
            return 400

        def __getitem__(self, index):
            time.sleep(0.004)
            return torch.rand(16), index % 3

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(16, 3)

        def forward(self, x):
            time.sleep(0.008)
            return self.layer(x)

    if __name__ == "__main__":
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        loader = DataLoader(Rows(), 8, shuffle=True, num_workers=1)
        for epoch in range(100):
            for x, y in loader:
                loss = nn.functional.cross_entropy(net(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                assert len([y for x, y in DataLoader(Rows(), 200)]) == 2, "validation is not replayed"
"""


@pytest.mark.serial
def test_each_part_alone_is_as_fast_as_it_was_made(tmp_path: Path) -> None:
    command = [*FLATOUT, "ceilings", "--seconds", "3s", "--json", "--", sys.executable, script(tmp_path, TRAIN)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    # 8 samples in 32 ms from the worker at best: sleeps, which a busy machine makes longer, not three times as long.
    assert 250 / 3 < found["loader_cold_sps"] < 250
    assert 250 / 3 < found["loader_warm_sps"] < 250
    # 8 samples in 8 ms from the device, and after each epoch a validation that is not replayed.
    assert 1000 / 10 < found["device_sps"] < 1000
    assert found["train_sps"] < found["device_sps"], "batches that cost nothing make it faster"
    assert sum(found["parts"].values()) == pytest.approx(1.0)
    assert len(list((tmp_path / ".flatout" / "runs").glob("*/run.json"))) == 1  # the training as it is
    assert "run 3 of 3" in done.stderr


@pytest.mark.slow
def test_a_training_without_a_loader_is_refused_after_the_first_run(tmp_path: Path) -> None:
    source = """
        import time
        import torch
        net = torch.nn.Linear(4, 2)
        for _ in range(10_000):
            net(torch.rand(2, 4)).sum().backward()
            time.sleep(0.01)
    """
    command = [*FLATOUT, "ceilings", "--seconds", "1s", "--", sys.executable, script(tmp_path, source)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 2 and done.stdout == ""
    assert "no DataLoader feeds this training" in done.stderr and "run 2" not in done.stderr
