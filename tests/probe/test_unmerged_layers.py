"""Layers that take the same input: which of them could be one, and that both ways are timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from flatout.probe import memory_room
from tests.probe.watched_steps import watched

X, IMAGE = torch.randn(4, 6, 16), torch.randn(2, 4, 9, 9)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(16, 5), nn.Linear(16, 5), nn.Linear(16, 3)])
        self.matrices = nn.ParameterList([nn.Parameter(torch.randn(16, 2)) for _ in range(4)])
        self.capsules = nn.ModuleList([nn.Conv2d(4, 2, 3, stride=2) for _ in range(3)])
        self.sizes = nn.ModuleList([nn.Conv2d(4, 2, size) for size in (1, 2, 3)])
        self.stack = nn.Sequential(*(nn.Linear(16, 16) for _ in range(3)))
        self.adjacency = nn.Parameter(torch.randn(4, 4))


def heads(net: Net) -> Tensor:
    return torch.cat([head(X) for head in net.heads], -1)


def heads_twice(net: Net) -> Tensor:
    return torch.stack([heads(net), torch.cat([head(2 * X) for head in net.heads], -1)])


def in_bfloat16(net: Net) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return heads(net).float()


def matrices(net: Net) -> Tensor:
    return torch.cat([X[0] @ matrix for matrix in net.matrices], -1)


def capsules(net: Net) -> Tensor:
    return torch.stack([capsule(IMAGE) for capsule in net.capsules])


def two(net: Net) -> Tensor:
    return net.heads[0](X) + net.heads[1](X)


def one_after_the_other(net: Net) -> Tensor:
    return net.stack(X)


def one_layer(net: Net) -> Tensor:
    return torch.stack([net.stack[0](X) for _ in range(3)])


def graph(net: Net) -> Tensor:
    """The adjacency is multiplied by what the layer before gave."""
    state = torch.randn(4, 16)
    for place in range(3):
        state = net.adjacency @ net.stack[place](state)
    return state


def other_kernels(net: Net) -> Tensor:
    return sum((layer(IMAGE).sum() for layer in net.sizes), torch.zeros(()))


def other_inputs(net: Net) -> Tensor:
    return torch.cat([head(X + place) for place, head in enumerate(net.heads)], -1)


def changed_between(net: Net) -> Tensor:
    values, found = X.clone(), []
    for head in net.heads:
        found.append(head(values).sum())
        values = values.clone().add_(1.0)
    return torch.stack(found)


def without_gradients(net: Net) -> Tensor:
    with torch.no_grad():
        target = heads(net)
    return target.sum() * net.adjacency


def updated_between(net: Net) -> Tensor:
    """One layer, whose weight follows its gradient."""
    layer: Any = net.heads[0]
    found = []
    for _ in range(4):
        loss = layer(X).square().mean()
        (gradient,) = torch.autograd.grad(loss, layer.weight, retain_graph=True)
        found.append(loss.detach())
        with torch.no_grad():
            layer.weight -= 0.01 * gradient
    return layer(X).sum()


def descended(net: Net) -> Tensor:
    """Leaves of which each is made of the one before."""
    weight = net.matrices[0]
    for _ in range(4):
        (gradient,) = torch.autograd.grad((X[0] @ weight).square().sum(), weight)
        weight = (weight - 0.1 * gradient).detach().requires_grad_()
    return (X[0] @ weight).sum() * net.adjacency


def parts_of_one(net: Net) -> Tensor:
    weight: Any = net.stack[0].weight
    return torch.stack([(X @ part.t()).sum() for part in weight.chunk(4)])


def of_numpy(net: Net) -> Tensor:
    """torch knows no version of such memory."""
    layer = nn.Linear(16, 5)
    layer.weight = nn.Parameter(torch.from_numpy(np.ones((5, 16), np.float32)))
    return torch.stack([functional.dropout(layer(X)) for _ in range(4)])


def cast_each_time(net: Net) -> Tensor:
    layer: Any = net.heads[0]
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        return torch.stack([layer(X) for _ in range(4)]).float()


@pytest.mark.parametrize(
    ("step", "operator", "layers", "groups", "shape"),
    [
        (heads, "addmm", 3, 1, [24, 16]),
        (heads_twice, "addmm", 3, 2, [24, 16]),
        (in_bfloat16, "addmm", 3, 1, [24, 16]),
        (matrices, "mm", 4, 1, [6, 16]),
        (capsules, "convolution", 3, 1, [2, 4, 9, 9]),
    ],
)
def test_layers_of_one_input_are_found_and_timed(
    monkeypatch: pytest.MonkeyPatch,
    step: Callable[[Net], Tensor],
    operator: str,
    layers: int,
    groups: int,
    shape: list[int],
) -> None:
    net = Net()
    before = torch.get_rng_state()
    [seen] = watched(monkeypatch, lambda: step(net).sum())["unmerged_layers"]
    assert (seen["operator"], seen["layers"], seen["groups"], seen["input"]) == (operator, layers, groups, shape)
    assert len(seen["apart_ns"]) == len(seen["joined_ns"]) >= 1 and min(*seen["apart_ns"], *seen["joined_ns"]) > 0
    assert seen["lines"][0][0] == __file__
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "step",
    [
        two,
        one_after_the_other,
        one_layer,
        graph,
        other_kernels,
        other_inputs,
        changed_between,
        without_gradients,
        updated_between,
        descended,
        parts_of_one,
        of_numpy,
        cast_each_time,
    ],
)
def test_others_are_left_alone(monkeypatch: pytest.MonkeyPatch, step: Callable[[Net], Tensor]) -> None:
    net = Net()
    assert "unmerged_layers" not in watched(monkeypatch, lambda: step(net).sum())


def test_the_gradients_of_the_training_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    net: Any = Net()
    heads(net).sum().backward()
    before = [head.weight.grad.clone() for head in net.heads]
    net.zero_grad()
    watched(monkeypatch, lambda: heads(net).sum())
    assert all(torch.equal(head.weight.grad, 2 * one) for head, one in zip(net.heads, before, strict=True))


@pytest.mark.parametrize(("name", "value"), [("lacking", "no memory is left"), ("for_copies", 10)])
def test_where_memory_is_short_they_are_not_timed(monkeypatch: pytest.MonkeyPatch, name: str, value: Any) -> None:
    net = Net()
    monkeypatch.setattr(memory_room, name, lambda: value)
    [seen] = watched(monkeypatch, lambda: heads(net).sum())["unmerged_layers"]
    assert "memory" in seen["skipped"] and "apart_ns" not in seen


def test_hooks_on_saved_tensors_may_draw_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()

    def pack(tensor: Tensor) -> Tensor:
        torch.rand(1)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        torch.manual_seed(0)
        found = watched(monkeypatch, lambda: heads(net).sum())
        state = torch.get_rng_state()
        torch.manual_seed(0)
        for _ in range(2):
            heads(net).sum().backward()
    assert torch.equal(torch.get_rng_state(), state) and "apart_ns" in found["unmerged_layers"][0]
