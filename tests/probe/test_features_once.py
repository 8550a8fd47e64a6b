"""What a module that does not train gives is kept, and what is trained stays the same within rounding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.probe.test_injections import trained

SCRIPT = """
import json, sys, torch
from collections import OrderedDict
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

KINDS = %r
EPOCHS, SAMPLES, BATCH = 12, 32, 8
counts = {}

class Backbone(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.scale = kind, 1.0
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh())
        self.latest = None

    def forward(self, x, mask=None, *, factor=1.0):
        if not torch.is_grad_enabled() or self.kind != "validation":
            counts[self.kind] = counts.get(self.kind, 0) + 1
        found = self.layers(x) * self.scale * factor
        if mask is not None:
            found = found * mask
        if self.kind == "random":
            found = found * torch.rand(())
        if self.kind == "stores":
            self.latest = found
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
        return found

class Model(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.backbone, self.head = kind, Backbone(kind), nn.Linear(16, 3)
        self.backbone.requires_grad_(kind == "trained" or kind == "no_grad")
        self.backbone.train(kind == "statistics")
        if kind == "hooks":
            self.backbone.layers[0].register_forward_hook(lambda *a: None)

    def forward(self, x):
        if self.kind == "no_grad":
            with torch.no_grad():
                found = self.backbone(x)
        elif self.kind == "arguments":
            found = self.backbone(x, x[:, :1].round(), factor=2.0 if len(x) else 1.0)
        else:
            found = self.backbone(x)
        if self.kind == "dictionary":
            found = found["features"]
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
        if kind == "schedule":
            model.backbone.scale = 1.0 / (1 + epoch)
        if kind == "written beside the version":
            model.backbone.layers[0].weight.data = model.backbone.layers[0].weight.data * 0.5 if epoch == 9 else \
                model.backbone.layers[0].weight.data
        for x, y in DataLoader(data, BATCH, shuffle=True, generator=generator):
            if kind == "augmented":
                x = x + 0.1 * torch.randn_like(x)
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses

print(json.dumps({kind: [train(kind), counts.get(kind, 0)] for kind in KINDS}))
"""
PASSES, STEPS = 12, 4
KEPT = ("plain", "no_grad", "arguments", "dictionary", "tuple", "in place", "half")
LEFT_ALONE = {
    "random": "it draws random numbers",
    "stores": "a call changes what it holds",
    "one number": "it gives something else than tensors with a row for each sample",
    "hooks": "it has hooks, which run when it computes",
    "statistics": "a call changes what it holds",
    "moving average": "its weights change",
    "schedule": "its weights change",
    "between samples": "it gave something else than before for the same samples",
    "trained": "",
    "augmented": "",
}
SETTINGS: dict[str, Any] = {"features_once": "Model.backbone", "sample_cache_bytes": 1 << 24}


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("features") / "train.py"


def both(script: Path, kind: str, **settings: Any) -> tuple[Any, Any, str]:
    """Losses and calls of a script as it is, and with the setting; and what was said."""
    script.write_text(SCRIPT % ((kind,),))
    before, _ = trained(script)
    after, said = trained(script, **{**SETTINGS, **settings})
    return before[kind], after[kind], said


@pytest.mark.parametrize("kind", KEPT)
def test_features_are_computed_in_the_first_passes_only(script: Path, kind: str) -> None:
    (losses, calls), (same, fewer), said = both(script, kind)
    assert same == pytest.approx(losses, rel=1e-5)
    assert calls == PASSES * STEPS
    # A pass that stores, eight calls that are compared, and one of 64 later ones.
    assert STEPS + 8 <= fewer <= STEPS + 8 + 1
    assert "could not be set" not in said


@pytest.mark.parametrize("kind", LEFT_ALONE)
def test_what_is_not_the_same_each_time_runs_each_time(script: Path, kind: str) -> None:
    (losses, calls), (same, as_many), said = both(script, kind)
    assert same == pytest.approx(losses, rel=1e-5)
    assert calls == as_many or kind == "stores"
    why = LEFT_ALONE[kind]
    if why:
        assert f"features_once could not be set: {why}" in said or f"features_once was stopped: {why}" in said
    else:
        assert "could not be set" not in said and "was stopped" not in said


def test_weights_replaced_beside_their_version_are_noticed(script: Path) -> None:
    (losses, _), (same, _), _said = both(script, "written beside the version")
    assert same == pytest.approx(losses, rel=1e-5)


def test_a_module_that_is_not_there_is_said(script: Path) -> None:
    (losses, _), (same, _), said = both(script, "plain", features_once="Model.encoder")
    assert same == losses and "features_once could not be set: there is no such module" in said


def test_no_room_for_all_samples_costs_nothing_but_the_gain(script: Path) -> None:
    (losses, calls), (same, fewer), _ = both(script, "plain", sample_cache_bytes=1024)
    assert same == pytest.approx(losses, rel=1e-5) and fewer == calls
