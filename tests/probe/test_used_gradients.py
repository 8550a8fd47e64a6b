"""Gradients that nothing uses are left out, and all that the training computes with stays the same, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.probe.test_injections import trained

pytestmark = pytest.mark.slow

SCRIPT = """
import json
import torch
from torch import nn

KINDS = %s

def train(kind):
    torch.manual_seed(0)
    backbone, head = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU()), nn.Linear(32, 3)
    model = nn.Sequential(backbone, head)
    computed = [0]

    class Counted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            computed[0] += 1
            return gradient

    optimizer = torch.optim.SGD((model if kind == "all used" else head).parameters(), 0.1)
    seen, grads, counts = [], [], []
    for step in range(16):
        if kind == "second phase" and step == 8:
            optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
        if kind in ("group added", "set to zero", "summed up") and step == 8:
            optimizer.add_param_group({"params": list(backbone.parameters()), "lr": 0.1})
        x, y = torch.randn(16, 8), torch.randint(3, (16,))
        if kind == "leaf" and step >= 8:
            x.requires_grad_()
        hidden = Counted.apply(backbone(x))
        loss = nn.functional.cross_entropy(head(hidden), y)
        if kind == "twice":
            loss = loss + 0.1 * nn.functional.cross_entropy(head(backbone(2 * x)), y)
        if kind == "summed up":
            head.zero_grad()
        else:
            model.zero_grad(set_to_none=kind != "set to zero")
        loss.backward(retain_graph=kind == "retained")
        if kind == "moved" and step in (7, 9):
            model.to("cpu").double() if step == 7 else model.float()
            model.cpu().float()
        if kind == "norms":
            norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        if kind == "one of them":
            norm = backbone[0].weight.grad.abs().max().item()
        if kind == "listed":
            norm = torch._foreach_norm([p.grad for p in model.parameters()])
        if kind == "clipped":
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        seen.append(loss.item())
        grads.append([None if x.grad is None else float(x.grad.sum()), backbone[0].weight.grad is None])
        counts.append(computed[0])
    weights = [float(p.double().sum()) for p in model.parameters()]
    return {"losses": seen, "grads": grads, "weights": weights, "late": counts[-1] - counts[5]}

print(json.dumps({kind: train(kind) for kind in KINDS}))
"""
LEFT_OUT = ["simple", "retained", "twice", "moved"]
NEEDED_LATER = ["second phase", "group added", "leaf", "set to zero"]
READ = ["norms", "one of them", "listed", "summed up"]
SEVERAL = ["retained", "twice", "moved", "second phase", "group added", "set to zero"]


CLIPPED, ALL_USED = "clipped", "all used"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each training saw without the setting."""
    script = tmp_path_factory.mktemp("plain") / "train.py"
    script.write_text(SCRIPT % [*LEFT_OUT, *NEEDED_LATER, *READ, CLIPPED, ALL_USED])
    return trained(script)[0]


def changed_training(tmp_path: Path, kind: str) -> tuple[dict[str, Any], str]:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT % [kind])
    seen, said = trained(script, used_gradients=True)
    return seen[kind], said


@pytest.mark.parametrize("kind", ["simple", "leaf", *SEVERAL])
def test_the_training_is_the_same_and_backward_passes_are_shorter(
    tmp_path: Path, plain: dict[str, dict[str, Any]], kind: str
) -> None:
    changed, said = changed_training(tmp_path, kind)
    assert "could not be set" not in said
    assert plain[kind]["late"] == 10
    late = 0 if kind in LEFT_OUT else 8
    assert changed == plain[kind] | {"late": late}, "passes of the last ten steps through the backbone"


@pytest.mark.parametrize(
    ("kind", "why"), [(CLIPPED, "clipped by their norm"), (ALL_USED, "optimizers use all gradients")]
)
def test_where_they_may_be_used_nothing_is_left_out(
    tmp_path: Path, plain: dict[str, dict[str, Any]], kind: str, why: str
) -> None:
    changed, said = changed_training(tmp_path, kind)
    assert changed == plain[kind]
    assert "used_gradients" in said and why in said


@pytest.mark.parametrize("kind", READ)
def test_code_that_reads_them_is_noticed_and_all_are_computed_from_then_on(
    tmp_path: Path, plain: dict[str, dict[str, Any]], kind: str
) -> None:
    changed, said = changed_training(tmp_path, kind)
    why = "an optimizer takes over gradients" if kind == "summed up" else "other code reads the gradients"
    assert "used_gradients could not be set" in said and why in said
    assert changed["late"] == (8 if kind == "summed up" else 10)
    assert kind == "summed up" or changed["losses"] == plain[kind]["losses"]
