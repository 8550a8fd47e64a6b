"""What a module that does not train gives is kept, and what is trained stays the same within rounding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.probe.test_injections import trained

pytestmark = pytest.mark.slow

SCRIPT = """
import json, os, sys, torch
from collections import OrderedDict
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

KINDS = %r
EPOCHS, SAMPLES, BATCH = 12, 32, 8
counts, FACTOR, VALUES, LEFT = {}, 1.0, [1.0], {}
plain_tanh = torch.tanh

def counted(x):  # of the layers, which are torch's
    counts["calls"] = counts.get("calls", 0) + 1
    return plain_tanh(x)

torch.tanh = counted

class Backbone(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.scale = kind, 1.0
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh())
        self.latest = None

    def forward(self, x, mask=None, *, factor=1.0):
        found = self.layers(x) * self.scale * factor
        if mask is not None:
            found = found * mask
        if self.kind == "random":
            found = found * torch.rand(())
        if self.kind == "stores":
            self.latest = found
        if self.kind == "twice":
            return found, found.view(-1, 4, 4)
        if self.kind == "weight":
            return self.layers[0].weight[:len(x), :].t()[:1].expand(len(x), -1)
        if self.kind == "two forms" and factor > 1.5:
            return {"features": found, "more": found + 1.0}
        if self.kind == "dictionary":
            return {"features": found, "nothing": None}
        if self.kind == "tuple":
            return found, (found.argmax(1), found.double())
        if self.kind == "one number":
            return found.sum()
        if self.kind == "half":
            return found.to(torch.bfloat16)
        if self.kind == "between samples":
            return found - found.mean(0)
        if self.kind == "changes its input":
            x.mul_(1.5)
        return found

class OfList(Backbone):
    def forward(self, x):
        return self.layers(x) * VALUES[0]

class OfNumber(Backbone):
    def forward(self, x):
        return self.layers(x) * FACTOR

class OfEnvironment(Backbone):
    def forward(self, x):
        return self.layers(x) * float(os.environ.get("FACTOR", "1"))

class OfFile(Backbone):
    def forward(self, x):
        return self.layers(x) * float(open(__file__ + ".factor").read())

class Leaves(Backbone):
    def forward(self, x):
        found = self.layers(x)
        LEFT["features"] = found * 2.0
        return found

SPECIAL = {"list": OfList, "number": OfNumber, "environment": OfEnvironment, "file": OfFile,
           "leaves a dictionary": Leaves}

class Model(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.backbone, self.head = kind, SPECIAL.get(kind, Backbone)(kind), nn.Linear(16, 3)
        self.backbone.requires_grad_(kind == "trained" or kind == "no_grad")
        self.backbone.train(kind == "statistics")
        if kind == "modes":
            del self.backbone.layers[1]
        if kind == "wrapped":
            forward = self.backbone.forward
            def wrapped(x):
                return 2.0 * forward(x)
            self.backbone.forward = wrapped
        if kind == "hooks":
            self.backbone.layers[0].register_forward_hook(lambda *a: None)

    def forward(self, x):
        if self.kind == "no_grad":
            with torch.no_grad():
                found = self.backbone(x)
        elif self.kind == "arguments":
            found = self.backbone(x, x[:, :1].round(), factor=2.0 if len(x) else 1.0)
        elif self.kind == "two forms":
            found = self.backbone(x, None, factor=1.0 + (counts["steps"] & 1))
            found = found["features"] if counts["steps"] & 1 else found
        else:
            found = self.backbone(x)
        if self.kind == "dictionary":
            found = found["features"]
        if self.kind == "leaves a dictionary":
            found = found + LEFT["features"]
        if self.kind == "changes its input":
            found = found + x.sum()
        if self.kind == "twice":
            found[0].add_(1.0)
            found = found[0] + found[1].flatten(1)
        if self.kind == "weight":
            found = nn.functional.pad(found, (0, 16 - found.shape[1]))
        if self.kind == "tuple":
            found = found[0] + found[1][0][:, None] + found[1][1].float()
        if self.kind == "in place":
            found.add_(1.0)
        if self.kind == "one number":
            found = torch.ones(len(x), 16) * found
        return self.head(found.float())

def train(kind):
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(SAMPLES, 6), torch.randint(0, 3, (SAMPLES,)))
    generator = torch.Generator().manual_seed(1)
    model = Model(kind)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for epoch in range(EPOCHS):
        if kind == "moving average":
            with torch.no_grad():
                for weight in model.backbone.parameters():
                    weight.mul_(0.9).add_(0.01)
        late = epoch >= 9
        VALUES[0], os.environ["FACTOR"] = 1.0 + late, str(1.0 + late)
        with open(__file__ + ".factor", "w") as file:
            file.write(str(1.0 + late))
        if kind == "data" and epoch == 9:
            model.backbone.layers[0].weight.data.mul_(2.0)
        if kind == "one element" and epoch == 9:
            model.backbone.layers[0].weight.detach().numpy()[0, 0] = 30.0
        if kind == "global hook" and epoch == 9:
            nn.modules.module.register_module_forward_hook(
                lambda module, args, found: found * 1.5 if isinstance(module, nn.Tanh) else None)
        if kind == "number":
            globals()["FACTOR"] = 1.0 / (1 + epoch)
        if kind == "modes":
            model.eval()
            with torch.no_grad():
                model(data.tensors[0])
            model.train()
        if kind == "schedule":
            model.backbone.scale = 1.0 / (1 + epoch)
        if kind == "written beside the version":
            model.backbone.layers[0].weight.data = model.backbone.layers[0].weight.data * 0.5 if epoch == 9 else \
                model.backbone.layers[0].weight.data
        for x, y in DataLoader(data, BATCH, shuffle=True, generator=generator):
            counts["steps"] = counts.get("steps", 0) + 1
            if kind == "augmented":
                x = x + 0.1 * torch.randn_like(x)
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses

print(json.dumps({kind: [train(kind), counts.pop("calls", 0)] for kind in KINDS}))
"""
PASSES, STEPS = 12, 4
KEPT = ("plain", "no_grad", "arguments", "dictionary", "tuple", "in place", "half")
LEFT_ALONE = {
    "random": "it draws random numbers",
    "stores": "a call changes what it holds",
    "one number": "it gives something else than tensors with a row for each sample",
    "hooks": "it has hooks, which run when it computes",
    "statistics": "a call changes what it holds",
    "moving average": "what it computes with changes",
    "schedule": "what it computes with changes",
    "between samples": "it gave something else than before for the same samples",
    "number": "what it computes with changes",
    "file": "a call opens files",
    "changes its input": "a call changes what it is given",
    "leaves a dictionary": "a call changes what it holds",
    "twice": "what it gives shares memory with something else",
    "weight": "what it gives shares memory with something else",
    "trained": "",
    "augmented": "",
}
SETTINGS: dict[str, Any] = {"features_once": "Model.backbone", "sample_cache_bytes": 1 << 24}


LATE = ("list", "data", "environment", "one element", "global hook")
OTHERS = ("two forms", "modes", "wrapped", "written beside the version")


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Losses and calls of each kind without the setting."""
    script = tmp_path_factory.mktemp("before") / "train.py"
    script.write_text(SCRIPT % ((*KEPT, *LEFT_ALONE, *OTHERS, *LATE),))
    return trained(script)[0]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("features") / "train.py"


def kept(script: Path, kind: str, **settings: Any) -> tuple[list[float], int, str]:
    """Losses and calls of one kind with the setting; and what was said."""
    script.write_text(SCRIPT % ((kind,),))
    after, said = trained(script, **{**SETTINGS, **settings})
    return *after[kind], said


@pytest.mark.parametrize("kind", KEPT)
def test_features_are_computed_in_the_first_passes_only(script: Path, before: dict[str, Any], kind: str) -> None:
    (losses, calls), (same, fewer, said) = before[kind], kept(script, kind)
    assert same == pytest.approx(losses, rel=1e-5)
    assert calls == PASSES * STEPS
    # The call after which it is counted, a pass that stores, eight calls that are compared, and one of 64 later ones.
    assert STEPS + 8 <= fewer <= STEPS + 8 + 3
    assert "could not be set" not in said


@pytest.mark.parametrize("kind", LEFT_ALONE)
def test_what_is_not_the_same_each_time_runs_each_time(script: Path, before: dict[str, Any], kind: str) -> None:
    (losses, calls), (same, as_many, said) = before[kind], kept(script, kind)
    assert same == pytest.approx(losses, rel=1e-5)
    assert calls == as_many or kind == "stores"
    why = LEFT_ALONE[kind]
    if why:
        assert f"features_once could not be set: {why}" in said or f"features_once was stopped: {why}" in said
    else:
        assert "could not be set" not in said and "was stopped" not in said


@pytest.mark.parametrize(
    "kind",
    [
        "list",
        "data",
        "environment",
        "one element",
        "global hook",
    ],
)
def test_a_change_in_a_late_pass_is_noticed_at_once(script: Path, before: dict[str, Any], kind: str) -> None:
    (losses, calls), (same, fewer, _) = before[kind], kept(script, kind)
    assert same == pytest.approx(losses, rel=1e-5) and fewer < calls


@pytest.mark.parametrize("kind", ["two forms", "modes", "wrapped"])
def test_forms_modes_and_wrappers_train_the_same(script: Path, before: dict[str, Any], kind: str) -> None:
    (losses, calls), (same, fewer, said) = before[kind], kept(script, kind)
    assert same == pytest.approx(losses, rel=1e-5)
    assert fewer < 0.8 * calls  # what is wrapped is kept, the wrapper runs each time
    assert "could not be set" not in said and "was stopped" not in said


def test_weights_replaced_beside_their_version_are_noticed(script: Path, before: dict[str, Any]) -> None:
    kind = "written beside the version"
    (losses, _), (same, _, _) = before[kind], kept(script, kind)
    assert same == pytest.approx(losses, rel=1e-5)


def test_a_module_that_is_not_there_is_said(script: Path, before: dict[str, Any]) -> None:
    (losses, _), (same, _, said) = before["plain"], kept(script, "plain", features_once="Model.encoder")
    assert same == losses and "features_once could not be set: there is no such module" in said


def test_no_room_for_all_samples_costs_nothing_but_the_gain(script: Path, before: dict[str, Any]) -> None:
    (losses, calls), (same, fewer, _) = before["plain"], kept(script, "plain", sample_cache_bytes=1024)
    assert same == pytest.approx(losses, rel=1e-5) and fewer == calls
