"""Passes of a model with its pixels channels first and last, on an input of the training."""

from __future__ import annotations

import types
from typing import Any, ClassVar

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


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, x: Tensor, larger: bool = True) -> Tensor:
        out: Tensor = self.net(x.repeat_interleave(4, -1) if larger else x)
        return out


def around_itself() -> nn.Module:
    made: Any = network()
    plain = made.forward
    made.forward = lambda x: plain(x)
    return made


class Shared(nn.Module):
    """A copy of it is the same one."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def __deepcopy__(self, memo: Any) -> Shared:
        return self

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x)
        return out


class Counted(Named):
    calls = 0

    def forward(self, x: Tensor, larger: bool = True) -> Tensor:
        Counted.calls += 1
        return super().forward(x, larger)


class Listed(Named):
    sizes: ClassVar[list[int]] = []

    def forward(self, x: Tensor, larger: bool = True) -> Tensor:
        self.noted(x)
        return super().forward(x, larger)

    def noted(self, x: Tensor) -> None:
        self.sizes.append(len(x))


def noisy(x: Tensor, generator: Any = torch.Generator()) -> Tensor:  # noqa: B008
    return x + torch.randn(x.shape, generator=generator)


class Noisy(Named):
    def forward(self, x: Tensor, larger: bool = True) -> Tensor:
        return super().forward(noisy(x), larger)


@pytest.mark.parametrize(
    ("make", "named", "because"),
    [
        (Named, {"larger": False}, "the model is called with larger by name"),
        (around_itself, {}, "Sequential.forward uses variables of the function around it"),
        (Shared, {}, "a copy of the model shares tensors with it"),
        (Counted, {}, "Counted.forward may change the class Counted"),
        (Listed, {}, "Listed.noted uses sizes, which all of its class share"),
        (Noisy, {}, "noisy has a default that is kept between calls"),
    ],
)
def test_copies_that_would_be_seen_outside_are_not_called(make: Any, named: dict[str, Any], because: str) -> None:
    net, x = make(), torch.randn(2, 3, 16, 16)
    calls = inputs_of(lambda: net(x, **named).sum().backward())
    buffers = [one.clone() for one in net.buffers()]
    (found,) = model_layouts.measured(calls, 1e6)
    assert because in found["skipped"]
    assert all(map(torch.equal, net.buffers(), buffers)) and all(one.is_contiguous() for one in net.parameters())


class Queue(Named):
    def forward(self, x: Tensor, seen: Any = None) -> Tensor:  # type: ignore[override]
        x.add_(1.0)
        seen.append(len(x))
        return super().forward(x, False)


def test_arguments_are_copied() -> None:
    net, x, seen = Queue(), torch.zeros(2, 3, 16, 16), list[int]()
    calls = inputs_of(lambda: net(x, seen).sum().backward(), 1)
    (found,) = model_layouts.measured(calls, 1e6)
    assert found["plain_ns"] and seen == [2] and torch.equal(x, torch.ones_like(x))


def test_a_parametrized_weight_is_not_asked_for() -> None:
    net = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 4, 3)), nn.Conv2d(4, 4, 1))
    x = torch.randn(2, 3, 16, 16)
    calls = inputs_of(lambda: net(x).sum().backward())
    before = [one.clone() for one in net.buffers()]
    state = torch.get_rng_state()
    model_layouts.measured(calls, 1e6)
    assert all(map(torch.equal, net.buffers(), before)) and torch.equal(torch.get_rng_state(), state)


def test_calls_with_other_sizes_do_not_count() -> None:
    net = network()
    large, small = torch.randn(2, 3, 32, 32), torch.randn(2, 3, 12, 12)
    calls = inputs_of(lambda: (net(large).sum() + sum(net(small).sum() for _ in range(5))).backward())
    (found,) = model_layouts.measured(calls, 1e6)
    assert (found["calls"], found["input"]) == (1, [2, 3, 32, 32])


def test_a_model_of_a_kind_of_its_own_is_left_alone() -> None:
    class Bare(nn.Conv2d):
        def __init__(self) -> None:
            super().__init__(3, 4, 3)
            kernel = self.weight.detach().clone()
            del self.weight
            self.kernel = nn.Parameter(kernel)

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.conv2d(x, self.kernel)

    net, x = nn.Sequential(Bare(), nn.Linear(6, 2)), torch.randn(2, 3, 8, 8)
    calls = inputs_of(lambda: net(x).sum().backward())
    assert len(calls) == 1 and model_layouts.measured(calls, 1e6) == []


def test_a_layer_that_was_never_called_has_no_sizes() -> None:
    net, x = nn.Sequential(network(), nn.Identity()), torch.randn(2, 3, 8, 8)
    net.later = nn.LazyConv2d(2, 1)
    net.forward = types.MethodType(lambda self, x: self[0](x), net)  # type: ignore[method-assign]
    calls = inputs_of(lambda: net(x).sum().backward())
    assert model_layouts._dimensions(net) == {4} and len(calls) == 1


def test_a_fault_in_a_models_own_code_ends_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = network(), torch.randn(2, 3, 8, 8)
    calls = inputs_of(lambda: net(x).sum().backward())
    monkeypatch.setattr(model_layouts, "_dimensions", lambda module: 1 // 0)
    assert model_layouts.measured(calls, 1e6) == []
