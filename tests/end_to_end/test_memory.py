"""``flatout memory`` on an unchanged script: a line through two tracked batch sizes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.profiling import FLATOUT, TIMEOUT_S, script

pytestmark = pytest.mark.slow

TRAIN = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    net = torch.nn.Sequential(torch.nn.Linear(1000, 2000), torch.nn.ReLU(), torch.nn.Linear(2000, 10))
    optimizer = torch.optim.Adam(net.parameters())
    for x, y in DataLoader(TensorDataset(torch.rand(640, 1000), torch.zeros(640, dtype=int)), 32):
        loss = torch.nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
WEIGHTS = 4 * (1000 * 2000 + 2000 + 2000 * 10 + 10)


def test_weights_and_the_optimizer_are_the_base_and_activations_the_slope(tmp_path: Path) -> None:
    command = [*FLATOUT, "memory", "--json", "--gpu", "1GiB", "--gpu", "8GiB", "--", sys.executable]
    done = subprocess.run(
        [*command, str(script(tmp_path, TRAIN))], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    assert "run 1 of 2" in done.stderr and "run 2 of 2" in done.stderr
    found = json.loads(done.stdout)
    assert [step["batch_size"] for step in found["steps"]] == [32, 64] and found["measured_slope"]
    # Weights, gradients, Adam's two moments, and at most what its step needs meanwhile.
    assert 2.9 * WEIGHTS < found["base_bytes"] < 5.1 * WEIGHTS < found["least_bytes"] < 7 * WEIGHTS
    assert 0 < found["slope_bytes"] < 10 * 4 * (1000 + 2000 + 10)
    assert found["largest"]["1GiB"] == 0 < found["largest"]["8GiB"]
    assert not any((tmp_path / ".flatout/runs").glob("*/run.json"))


def test_a_step_in_a_closure_that_ends_in_an_exit_code_of_its_own_is_tracked(tmp_path: Path) -> None:
    """As in Lightning, which takes the end of the script for Ctrl-C."""
    source = """
        import sys, torch
        net = torch.nn.Linear(1000, 100)
        optimizer = torch.optim.SGD(net.parameters())
        def closure():
            optimizer.zero_grad()
            loss = net(torch.rand(32, 1000)).sum()
            loss.backward()
            return loss
        try:
            while True:
                optimizer.step(closure)
        except SystemExit:
            sys.exit(130)
    """
    command = [*FLATOUT, "memory", "--json", "--", sys.executable, str(script(tmp_path, source))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"][0]["batch_size"] == 32


def test_a_script_without_an_optimizer_is_told(tmp_path: Path) -> None:
    train = script(tmp_path, "import torch; torch.rand(3)")
    done = subprocess.run(
        [*FLATOUT, "memory", "--", sys.executable, str(train)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 2 and "no step was tracked" in done.stderr
