"""A training in float64 is computed in float32, whatever stays float64 around it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flatout.runner.command import injecting_environment

TRAINING = """
import json
import torch
from torch import nn
from torch.nn import functional as F
%s
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1)).double()
optimizer = torch.optim.Adam(model.parameters())
x = torch.randn(64, 8, dtype=torch.float64)
y = (x.sum(1, keepdim=True) > 0).double()
weighted = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(2.0, dtype=torch.float64))
losses, before = [], model[0].weight
averages = [
    torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5)),
    torch.optim.swa_utils.AveragedModel(model, avg_fn=torch.optim.swa_utils.get_ema_avg_fn(0.5)),
]
by_hand = [parameter.detach().clone() for parameter in model.parameters()]
for step in range(12):
    out = model(x)
    loss = F.binary_cross_entropy_with_logits(out, y) + F.smooth_l1_loss(out, y) + nn.MSELoss()(out, y)
    loss = loss + weighted(out, y) + (out - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    for average in averages:
        average.update_parameters(model)
    for mean, parameter in zip(by_hand, model.parameters()):
        mean.copy_(torch.lerp(mean.lerp_(parameter.detach(), 0.5), parameter.detach(), 0.5))
means = [average.module[3].weight.sum().item() for average in averages] + [by_hand[4].sum().item()]
same = model[0].weight is before and before in optimizer.state
found = {"dtype": str(out.dtype), "grad": str(before.grad.dtype), "losses": losses, "same": same, "means": means}
print(json.dumps(found))
"""


def trained(folder: Path, first: str, **settings: Any) -> dict[str, Any]:
    script = folder / "train.py"
    script.write_text(TRAINING % first)
    environment = injecting_environment() | {"FLATOUT_SETTINGS": json.dumps(settings), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ("flatout: set float32=true\n" if settings else "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("first", ["", "torch.set_default_dtype(torch.float64)"])
def test_model_batches_and_losses_are_float32_and_the_losses_agree(tmp_path: Path, first: str) -> None:
    wide = trained(tmp_path, first)
    narrow = trained(tmp_path, first, float32=True)
    assert (wide["dtype"], narrow["dtype"], narrow["grad"]) == ("torch.float64", "torch.float32", "torch.float32")
    assert narrow["same"]
    assert narrow["losses"] == pytest.approx(wide["losses"], rel=1e-4)
    assert narrow["means"] == pytest.approx(wide["means"], rel=1e-3)  # averages were copied while it was float64
