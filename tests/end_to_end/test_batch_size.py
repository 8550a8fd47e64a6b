"""``flatout batch-size`` on a real training: the size reaches it, and nothing is left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import jsonschema
import pytest

from tests.end_to_end.profiling import FLATOUT

pytestmark = [pytest.mark.serial, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs/schema/batch-size.schema.json").read_text("utf-8"))
# A step costs 30 ms and a sample hardly anything: twice the batch is nearly twice the speed.
TRAIN = """
    import time
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    net = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(4000, 8)), 4)
    for (x,) in loader:
        time.sleep(0.03)
        optimizer.zero_grad()
        net(x).pow(2).mean().backward()
        optimizer.step()
        with open("metrics.csv", "a") as file:
            file.write(f"{len(x)}\\n")
"""


def test_the_larger_batch_reaches_the_training_and_no_file_of_it_is_left(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(dedent(TRAIN))
    options = ["--most", "8", "--seconds", "1", "--budget", "10m", "--json"]
    done = subprocess.run(
        [*FLATOUT, "batch-size", *options, "--", sys.executable, "train.py"], cwd=tmp_path, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    assert (found["own"], found["knee"], found["samples_per_epoch"]) == (4, 8, 4000)
    assert found["gain"]["low"] > 1.3 and found["still_growing"]
    assert found["learning_rate"]["rule"] == "linear" and found["learning_rate"]["factor"] == 2.0
    assert [one["steps_per_epoch"] for one in found["sizes"] if one["batch_size"] in (4, 8)] == [1000, 500]
    assert all(one["host_bytes"] > 50 << 20 for one in found["sizes"])
    assert "--most 8" in found["limit"]
    assert found["keep"]["command"].startswith("flatout apply --set batch_size=8 --set lr_factor=2.0 -- ")
    assert {path.name for path in tmp_path.iterdir()} <= {"train.py", ".flatout"}
    assert not (tmp_path / ".flatout/batch-size").exists()
