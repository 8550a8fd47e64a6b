"""A training in 64-bit floats computes in 32-bit ones inside its models, and keeps its own types around them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flatout.runner.command import injecting_environment

TRAINING = """
import json, sys, torch
from torch import nn

torch.manual_seed(0)
torch.set_default_dtype(getattr(torch, sys.argv[1]))

class Waves(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Tanh())
        self.wave = nn.Parameter(torch.fft.rfft(torch.randn(32)))
        self.head = nn.Linear(32, 4)

    def forward(self, batch):
        x = self.body(batch["x"]) + torch.zeros(32)  # made inside, in the default type
        x = torch.fft.irfft(torch.fft.rfft(x) * self.wave)
        return {"out": self.head(x), "hidden": (x,)}

model = Waves()
optimizer = torch.optim.Adam(model.parameters(), 0.01)
with torch.no_grad():
    before = model({"x": torch.ones(8, 16)})["out"].dtype
if "resumed" in sys.argv:
    for parameter in model.parameters():
        optimizer.state[parameter] = {
            "step": torch.tensor(3.0),
            "exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.ones_like(parameter),
        }
x, y = torch.randn(64, 16), torch.randn(64, 4)
losses = []
for step in range(20):
    batch = {"x": x}
    found = model(batch)
    loss = nn.functional.mse_loss(found["out"], y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
with torch.no_grad():
    part = model.body(x).dtype  # a part called by itself
print(json.dumps({
    "losses": losses, "loss": str(loss.dtype), "before": str(before), "part": str(part), "batch": str(batch["x"].dtype),
    "weights": str(model.head.weight.dtype), "running": str(model.body[1].running_mean.dtype),
    "wave": str(model.wave.dtype), "moment": str(optimizer.state[model.head.weight]["exp_avg"].dtype),
    "outputs": [str(found["out"].dtype), str(found["hidden"][0].dtype)], "default": str(torch.get_default_dtype()),
}))
"""


def trained(folder: Path, *words: str, **settings: Any) -> tuple[dict[str, Any], str]:
    script = folder / "waves.py"
    script.write_text(TRAINING)
    environment = injecting_environment() | {"FLATOUT_SETTINGS": json.dumps(settings), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.parametrize("words", [(), ("resumed",)])
def test_only_what_models_compute_is_in_32_bits(tmp_path: Path, words: tuple[str, ...]) -> None:
    plain, _ = trained(tmp_path, "float64", *words)
    seen, said = trained(tmp_path, "float64", *words, single_precision=True)
    assert seen["losses"] == pytest.approx(plain["losses"], rel=1e-3) and seen["losses"] != plain["losses"]
    changed = {name for name in plain if seen[name] != plain[name]} - {"losses"}
    assert {name: seen[name] for name in sorted(changed)} == {
        "moment": "torch.float32", "running": "torch.float32", "wave": "torch.complex64", "weights": "torch.float32",
    }  # fmt: skip
    assert "could not be set" not in said


def test_a_model_of_32_bit_floats_is_left_alone(tmp_path: Path) -> None:
    plain, _ = trained(tmp_path, "float32")
    seen, said = trained(tmp_path, "float32", single_precision=True)
    assert seen == plain
    assert "single_precision could not be set: the model has no 64-bit weights" in said
