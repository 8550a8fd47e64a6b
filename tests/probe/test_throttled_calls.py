"""Functions that only report run in every n-th step, and the training stays the same; others are left alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flatout.runner.command import injecting_environment

TRAINING = """
import copy, functools, json, random
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
names = "report hook average update add_up evaluate keep noise own_pass made normal dropped graph listed streamed tell"
calls = dict.fromkeys(names.split(), 0)

class Journal:
    def report(self, loss, *, scale=1.0):
        calls["report"] += 1
        return {"loss": loss * scale}

class Monitor:
    def make(self, name):
        def hook(module, inputs, output):
            calls["hook"] += 1
            seen[name] = output.abs().mean().item()
        return hook

def average(model, shadow):
    calls["average"] += 1
    for mine, other in zip(shadow.parameters(), model.parameters()):
        mine.data.mul_(0.9).add_(other.data, alpha=0.1)

@torch.no_grad()
def evaluate(model, loader):
    calls["evaluate"] += 1
    model.eval()
    found = sum(model(x).mean().item() for x, in loader)
    model.train()
    return found

def keep(output):
    calls["keep"] += 1
    kept.append(output.detach().repeat(64, 1))

def noise():
    calls["noise"] += 1
    random.random()

def normal():
    calls["normal"] += 1
    np.random.randn()

def dropped():
    calls["dropped"] += 1
    torch.rand(1000)

def graph(output):
    calls["graph"] += 1
    return {"output": [output]}

def listed():
    calls["listed"] += 1
    return iter([1])

def streamed():
    calls["streamed"] += 1
    yield 1

def own_pass(model, x):
    calls["own_pass"] += 1
    model(x).mean().backward()

def logged(function):
    @functools.wraps(function)
    def call(*args):
        return function(*args)
    return call

@logged
def tell(step):
    calls["tell"] += 1

def around():
    def made(value):
        calls["made"] += 1
        return value
    return made

class Average:
    def __init__(self):
        self.shadow = {"weight": np.zeros((64, 64))}

    def update(self, model):
        calls["update"] += 1
        self.shadow["weight"] = 0.9 * self.shadow["weight"] + 0.1 * model[0].weight.detach().numpy().sum()

totals = np.zeros(4096)

def add_up(model):
    calls["add_up"] += 1
    totals[:] += float(model[0].weight.detach().sum())

seen, kept, reported = {}, [], []
model = nn.Sequential(nn.Linear(16, 64), nn.Dropout(), nn.ReLU(), nn.Linear(64, 1))
for name, part in model.named_modules():
    if isinstance(part, nn.Linear):
        part.register_forward_hook(Monitor().make(name))
model[0].weight.data = model[0].weight.data.t().contiguous().t()  # as lies a weight in channels_last
shadow, journal, made, averaged = copy.deepcopy(model), Journal(), around(), Average()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.randn(64, 16)), 16, shuffle=True)
losses = []
for step in range(1, 42):
    x = torch.randn(32, 16)
    output = model(x)
    loss = (output - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    own_pass(model, x)
    optimizer.step()
    losses.append(loss.item())
    reported.append(journal.report(loss.item(), scale=2.0)["loss"])
    tell(step)
    average(model, shadow), keep(output), noise(), made(step), averaged.update(model), add_up(model)
    normal(), dropped(), graph(output), listed(), list(streamed())
    if step % 5 == 0:
        evaluate(model, loader)
    del kept[:-1]
print(json.dumps({"calls": calls, "losses": losses, "reported": reported, "average": shadow[0].weight.sum().item(),
    "arrays": averaged.shadow["weight"].sum() + totals.sum()}))
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("seldom") / "train.py"
    path.write_text(TRAINING)
    return path


def trained(script: Path, *calls: str) -> tuple[dict[str, Any], str]:
    """What the script saw, and what was said on standard error."""
    settings = json.dumps({"call_every": ",".join(f"{script.name}:{call}" for call in calls)} if calls else {})
    environment = injecting_environment() | {"FLATOUT_SETTINGS": settings, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.fixture(scope="module")
def plain(script: Path) -> dict[str, Any]:
    return trained(script)[0]


@pytest.fixture(scope="module")
def seldom(script: Path) -> tuple[dict[str, Any], str]:
    return trained(script, "Journal.report:10", "Monitor.make.hook:10", "evaluate:2", "around.made:10", "tell:10")


@pytest.mark.slow
def test_reports_hooks_and_validation_run_seldom_and_the_losses_stay(
    script: Path, plain: dict[str, Any], seldom: tuple[dict[str, Any], str]
) -> None:
    seen, said = seldom
    line = next(place for place, text in enumerate(script.read_text().splitlines(), 1) if "reported.append" in text)
    # The results of validation and hooks are dropped.
    assert said.startswith("flatout: set ") and said.count("\n") == 3
    for call in ("Journal.report", "around.made"):
        assert f" uses what train.py:{call} returns" in said
    assert f"train.py:{line} uses what train.py:Journal.report" in said
    # The first two steps, and each tenth from the first one.
    assert plain["calls"]["report"] == 41 and seen["calls"]["report"] == 6
    # Two layers, two passes a step, and those of the validations, which run in steps that are no turn of the hooks.
    assert seen["calls"]["hook"] < 0.4 * plain["calls"]["hook"]
    assert plain["calls"]["evaluate"] == 8 and seen["calls"]["evaluate"] == 5
    assert seen["calls"]["made"] == seen["calls"]["tell"] == 6  # also below a decorator, which has its name
    # The validation draws the order of its batches: where it is left out, as many numbers are drawn.
    assert seen["losses"] == plain["losses"]


def test_what_a_call_returned_is_returned_again(plain: dict[str, Any], seldom: tuple[dict[str, Any], str]) -> None:
    reported = seldom[0]["reported"]
    assert [set(reported[turn : turn // 10 * 10 + 10]) for turn in (1, 10, 20, 30)] == [
        {plain["reported"][turn]} for turn in (1, 10, 20, 30)
    ]


@pytest.mark.slow
def test_what_a_training_may_depend_on_is_left_alone(script: Path, plain: dict[str, Any]) -> None:
    refused = {
        "average": "it calls add_()",
        "keep": "it keeps tensors",
        "Average.update": "it changes arrays",
        "add_up": "it changes arrays",
        "noise": "it draws random numbers of Python or NumPy",
        "normal": "it draws random numbers of Python or NumPy",
        "dropped": "it draws random numbers",
        "graph": "its result is differentiated",
        "listed": "it returns an iterator",
        "streamed": "streamed is a generator or a coroutine",
        "own_pass": "it calls backward()",
        "missing": "there is no such function",
    }
    seen, said = trained(script, *(f"{call}:10" for call in refused))
    assert not [call for call, why in refused.items() if f"train.py:{call}: {why}" not in said], said
    assert seen == plain
