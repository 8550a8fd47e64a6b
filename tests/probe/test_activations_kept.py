"""Activations are kept in place of being computed again, and what is trained stays the same, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.probe.test_injections import trained

pytestmark = pytest.mark.slow

SCRIPT = """
import functools, json, random
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, create_selective_checkpoint_contexts

KINDS = %r

class Counted(nn.Linear):
    calls = 0

    def forward(self, x):
        Counted.calls += 1
        return super().forward(x)

def block(kind):
    norm = nn.BatchNorm1d(8) if kind == "batch norm" else nn.LayerNorm(8)
    return nn.Sequential(Counted(8, 8), norm, nn.Dropout(0.5), nn.Tanh())

def called(kind, block, x):
    if kind == "sequence":
        return checkpoint_sequential(block, 2, x, use_reentrant=False)
    if kind == "closure":
        return checkpoint(lambda value: block(value), x, use_reentrant=False)
    if kind == "partial":
        return checkpoint(functools.partial(block.__call__), x, use_reentrant=False)
    if kind == "nested":
        def outer(value):
            return block[1:](checkpoint(block[0], value, use_reentrant=False)).relu()
        return checkpoint(outer, x, use_reentrant=False)
    if kind in ("counter", "counter after a validation", "generator", "Python's numbers"):
        def drawn(value):
            counts[0].calls += "counter" in kind and block.training
            if kind == "generator":
                value = value * torch.rand((), generator=counts[0].generator)
            if kind == "Python's numbers":
                value = value * random.random()
            return block(value) * (1 + 0.1 * counts[0].calls)
        return checkpoint(drawn, x, use_reentrant=False)
    if kind == "decorator":
        return checkpoint(use_reentrant=False)(block.forward)(x)
    if kind == "chosen":
        ops = [torch.ops.aten.addmm.default]
        contexts = functools.partial(create_selective_checkpoint_contexts, ops)
        return checkpoint(block, x, use_reentrant=False, context_fn=contexts)
    if kind == "drawn anew":
        return checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
    return checkpoint(block, x, use_reentrant="reentrant" in kind)

class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.generator = 0, torch.Generator().manual_seed(0)

counts = []

def train(kind):
    torch.manual_seed(0)
    random.seed(0)
    counts[:] = [Counts()]
    blocks, head = nn.ModuleList([block(kind), block(kind)]), nn.Linear(8, 3)
    optimizer = torch.optim.SGD([*blocks.parameters(), *head.parameters()], 0.1)
    losses = []
    if "after" in kind:
        blocks.eval()
        with torch.no_grad():
            called(kind, blocks[0], torch.randn(16, 8))
        blocks.train()
    for step in range(6):
        x, y = torch.randn(16, 8), torch.randint(3, (16,))
        if kind != "reentrant without gradients":
            x.requires_grad_()
        before = Counted.calls
        hidden = x
        for one in blocks:
            hidden = called(kind, one, hidden)
        loss = nn.functional.cross_entropy(head(hidden), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append([loss.item(), x.grad is None or float(x.grad.sum())])
        with torch.no_grad():
            called(kind, blocks[0], x)
    tensors = [*blocks.parameters(), *blocks.buffers()]
    sums = [float(tensor.detach().double().sum()) for tensor in tensors]
    return {"losses": losses, "sums": sums, "last": Counted.calls - before}

print(json.dumps({kind: train(kind) for kind in KINDS}))
"""
KEPT = ("module", "sequence", "closure", "partial", "nested")
TWICE = "computed again, a part updates statistics, counters or random numbers of its own twice"
LEFT_ALONE = {
    "batch norm": TWICE,
    "counter": TWICE,
    "counter after a validation": TWICE,
    "generator": TWICE,
    "Python's numbers": TWICE,
    "chosen": "the script chooses what is computed again (context_fn)",
    "drawn anew": "random numbers are drawn anew",
    "reentrant": "with use_reentrant=True the first pass computes without gradients",
    "reentrant without gradients": "with use_reentrant=True the first pass computes without gradients",
    "decorator": "",
}


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    script = tmp_path_factory.mktemp("before") / "train.py"
    script.write_text(SCRIPT % ((*KEPT, *LEFT_ALONE),))
    return trained(script)[0]


def test_nothing_is_computed_again_and_the_training_is_the_same(tmp_path: Path, before: dict[str, Any]) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT % (KEPT,))
    after, said = trained(script, activations_kept=True)
    assert "could not be set" not in said
    for kind in KEPT:
        assert (before[kind].pop("last"), after[kind].pop("last")) == (7 if kind == "nested" else 5, 3), kind
        assert after[kind] == before[kind], kind


@pytest.mark.parametrize(("kind", "why"), LEFT_ALONE.items())
def test_what_would_train_differently_is_left_alone(
    tmp_path: Path, before: dict[str, Any], kind: str, why: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT % ((kind,),))
    after, said = trained(script, activations_kept=True)
    assert after[kind] == before[kind]
    if why:
        assert f"activations_kept could not be set: {why}" in said
    else:  # a decorator calls torch in a way of its own
        assert "nothing in this training took it" in said
