"""Two commands run in turn: the faster one is told, and nothing is left running."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.profiling import FLATOUT, TIMEOUT_S, script

TRAIN = """
    import sys
    import time
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    net = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    data = TensorDataset(torch.rand(100_000, 8))
    for (x,) in DataLoader(data, 16):
        time.sleep(float(sys.argv[1]))
        net(x).sum().backward()
        optimizer.step()
"""


def compare(folder: Path, a: str, b: str, *options: str) -> subprocess.CompletedProcess[str]:
    train = f"{sys.executable} {script(folder, TRAIN)}"
    command = [*FLATOUT, "compare", f"{train} {a}", f"{train} {b}", "--pairs", "2", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S)


@pytest.mark.serial
def test_the_faster_of_two_commands_is_told_with_an_interval(tmp_path: Path) -> None:
    # Sleeps of 80 and 40 ms: what a busy machine adds to a step is small beside them.
    done = compare(tmp_path, "0.08", "0.04", "--steps", "60", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert 1.5 < found["ratio"]["factor"] < 2.2
    assert found["ratio"]["pairs"] == 2 and len(found["a"]["runs"]) == 2
    assert [line.split(": ")[-1][0] for line in done.stderr.splitlines() if "run " in line] == ["A", "B", "B", "A"]
    assert len(list((tmp_path / ".flatout" / "runs").glob("*/run.json"))) == 4


@pytest.mark.slow
def test_a_command_that_fails_ends_the_comparison_with_its_exit_code(tmp_path: Path) -> None:
    done = compare(tmp_path, "0.01", "soon", "--steps", "60")
    assert done.returncode == 1
    assert "flatout: B: the command failed" in done.stderr and "could not convert" in done.stderr
