"""Passes of a model with its pixels channels first and last, on an input of the training."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from flatout.probe import memory_room
from flatout.probe.experiments import model_layouts
from flatout.probe.experiments.model_inputs import ModelInputs
from flatout.probe.recorder import REC


def network(channels_last: bool = False) -> nn.Sequential:
    made = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1), nn.Dropout(0.5))
    return made.to(memory_format=torch.channels_last) if channels_last else made


class Strides(nn.Module):
    """Notes how its inputs are laid out."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.last = network(), nn.Parameter(torch.zeros(1))
        self.seen: list[bool] = []

    def forward(self, x: Tensor) -> Tensor:
        self.last.data += float(x.is_contiguous(memory_format=torch.channels_last))
        out: Tensor = self.net(x)
        self.last.data += float(out.is_contiguous(memory_format=torch.channels_last))
        return out


def inputs_of(step: Any, steps: int = 2) -> Any:
    noted: Any = ModelInputs()
    noted.watch()
    try:
        for _ in range(steps):
            step()
            noted.step_ended()
    finally:
        noted.unwatch()
    return noted.taken()


@pytest.fixture(autouse=True)
def _first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REC.process, "channels_last", False)


def test_both_layouts_are_timed_and_nothing_changes() -> None:
    net, x = Strides(), torch.randn(2, 3, 16, 16)
    calls = inputs_of(lambda: [net(x).sum().backward() for _ in range(3)])
    buffers, weights = [one.clone() for one in net.buffers()], [one.clone() for one in net.parameters()]
    gradients = [one.grad.clone() for one in net.parameters() if one.grad is not None]
    state = torch.get_rng_state()
    (found,) = model_layouts.measured(calls, 1e6)
    assert (found["calls"], found["input"], found["name"]) == (3, [2, 3, 16, 16], "Strides")
    assert found["layout"] == "channels_last" and len(found["plain_ns"]) == len(found["joined_ns"]) >= 1
    assert all(map(torch.equal, net.buffers(), buffers)) and all(map(torch.equal, net.parameters(), weights))
    assert all(map(torch.equal, [one.grad for one in net.parameters() if one.grad is not None], gradients))
    assert all(one.is_contiguous() for one in net.parameters()) and torch.equal(torch.get_rng_state(), state)


def test_the_other_copy_is_laid_out_channels_last(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def timed(plain: Any, joined: Any, *sources: Any) -> Any:
        seen.extend(out.is_contiguous(memory_format=torch.channels_last) for form in (plain, joined) for out in form())
        return [1], [1]

    monkeypatch.setattr(model_layouts.both_ways, "timed", timed)
    net, x = network(), torch.randn(2, 3, 16, 16)
    model_layouts.measured(inputs_of(lambda: net(x).sum().backward()), 1e6)
    assert seen == [False, True]


def test_volumes_are_laid_out_as_well() -> None:
    net, x = nn.Sequential(nn.Conv3d(1, 4, 3), nn.ReLU()), torch.randn(2, 1, 8, 8, 8)
    (found,) = model_layouts.measured(inputs_of(lambda: net(x).sum().backward()), 1e6)
    assert found["layout"] == "channels_last_3d" and found["plain_ns"]


@pytest.mark.parametrize("why", ["laid out so", "no convolutions", "long steps", "not known"])
def test_other_models_are_left_alone(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 256, 4)) if why == "no convolutions" else network(why[0] == "l")
    if why == "long steps":
        net = network()
    if why == "not known":
        monkeypatch.delitem(REC.process, "channels_last")
    x = torch.randn(2, 3, 16, 16)
    calls = inputs_of(lambda: net(x).sum().backward())
    assert model_layouts.measured(calls, 2e9 if why == "long steps" else 1e6) == []


def test_why_a_model_was_not_timed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = network(), torch.randn(2, 3, 16, 16)
    net.register_forward_hook(lambda *_: None)
    calls = inputs_of(lambda: net(x).sum().backward())
    (found,) = model_layouts.measured(calls, 1e6)
    assert "hooks on the model" in found["skipped"] and "plain_ns" not in found
    monkeypatch.setattr(memory_room, "for_copies", lambda: 10)
    (found,) = model_layouts.measured(calls, 1e6)
    assert "memory" in found["skipped"]
