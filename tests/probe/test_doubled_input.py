"""Passes of a model on an input, and on the input joined to itself."""

from __future__ import annotations

import os
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import Tensor, nn  # noqa: E402

from flatout.probe import memory_room  # noqa: E402
from flatout.probe.experiments import doubled_input  # noqa: E402
from flatout.probe.experiments.model_inputs import ModelInputs  # noqa: E402


def measured(net: nn.Module, *inputs: Any) -> tuple[dict[str, Any], ModelInputs]:
    """What is recorded of a step of this network."""
    found: Any = ModelInputs()
    found.watch()
    try:
        net(*inputs).sum().backward()
    finally:
        found.unwatch()
    return doubled(found), found


def doubled(inputs: ModelInputs) -> dict[str, Any]:
    found: dict[str, Any] = doubled_input.measured([call for call, _ in inputs.taken()], inputs.lacking)
    return found


class Counting(nn.Module):
    """Notes the samples of each of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
        self.seen: list[int] = []

    def forward(self, inputs: Tensor, scale: float = 1.0) -> Tensor:
        self.seen.append(len(inputs))
        out: Tensor = self.layers(inputs) * scale
        return out


def test_each_round_has_the_input_and_twice_the_input() -> None:
    net = Counting()
    found, _ = measured(net, torch.randn(5, 6), 2.0)
    assert found["samples"] == 5
    assert len(found["single_ns"]) == len(found["doubled_ns"]) == doubled_input.ROUNDS
    assert net.seen == [5]  # a copy is called


def test_gradients_buffers_and_random_numbers_are_as_before() -> None:
    net = Counting()
    net(torch.randn(5, 6)).sum().backward()
    gradients = [parameter.grad.clone() for parameter in net.parameters()]
    seen: Any = ModelInputs()
    seen.watch()
    net(torch.randn(5, 6))
    seen.unwatch()
    buffers, state = [buffer.clone() for buffer in net.buffers()], torch.get_rng_state()
    assert "samples" in doubled(seen)
    assert all(torch.equal(one.grad, before) for one, before in zip(net.parameters(), gradients, strict=True))
    assert all(torch.equal(one, before) for one, before in zip(net.buffers(), buffers, strict=True))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_loss_and_a_model_in_evaluation_are_no_models_of_the_training() -> None:
    found: Any = ModelInputs()
    found.watch()
    outputs = Counting().eval()(torch.randn(5, 6))
    nn.MSELoss()(outputs, torch.zeros_like(outputs)).backward()
    found.unwatch()
    assert doubled(found) == {"skipped": "no model was called with gradients"}


def test_hooks_of_the_user_see_no_pass_of_the_probe() -> None:
    net = Counting()
    calls: list[int] = []
    net.layers[0].register_forward_hook(lambda *_: calls.append(1))
    found, _ = measured(net, torch.randn(5, 6))
    assert found == {"skipped": "hooks on the model would see its passes"} and calls == [1]


CALLS: dict[str, int] = {}
FEW = 2


class CountsOutside(Counting):
    def forward(self, inputs: Tensor, scale: float = 1.0) -> Tensor:
        CALLS["forward"] = CALLS.get("forward", 0) + FEW
        return super().forward(inputs, scale)


class Writes(Counting):
    def forward(self, inputs: Tensor, scale: float = 1.0) -> Tensor:
        os.write(1, b"")
        return super().forward(inputs, scale)


class KeepsLosses(Counting):
    """Losses that the training adds to its own, as a mixture of experts does."""

    def forward(self, inputs: Tensor, scale: float = 1.0) -> Tensor:
        outputs = super().forward(inputs, scale)
        self.losses = [*getattr(self, "losses", []), outputs.square().mean()]
        return outputs


class AssignsOutside(Counting):
    def forward(self, inputs: Tensor, scale: float = 1.0) -> Tensor:
        global FEW
        FEW = 2
        return super().forward(inputs, scale)


def of_a_function_around_it() -> type[Counting]:
    passes = [0]

    class CountsAround(Counting):
        def forward(self, inputs: Tensor, scale: float = 1.0) -> Tensor:
            passes[0] += 1
            return super().forward(inputs, scale)

    return CountsAround


@pytest.mark.parametrize(
    ("kind", "because"),
    [
        (AssignsOutside, "AssignsOutside.forward assigns to the global FEW"),
        (of_a_function_around_it(), "of_a_function_around_it.<locals>.CountsAround.forward uses variables of the"),
        (CountsOutside, "CountsOutside.forward uses the global CALLS"),
        (Writes, "Writes.forward calls write()"),
        (KeepsLosses, "it raised RuntimeError: Only Tensors created explicitly by the user"),
    ],
)
def test_what_a_pass_would_change_outside_of_a_copy_is_left_alone(kind: type[Counting], because: str) -> None:
    CALLS.clear()
    found, _ = measured(kind(), torch.randn(5, 6))
    assert found["skipped"].startswith(because)
    assert CALLS in ({}, {"forward": FEW})


def test_a_model_that_memory_has_no_room_for_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_room, "for_copies", lambda: 100)
    assert measured(Counting(), torch.randn(5, 6))[0] == {"skipped": "the model is too large to be copied"}
    monkeypatch.setattr(memory_room, "lacking", lambda: "0.10 GB of memory are left")
    assert measured(Counting(), torch.randn(5, 6))[0] == {"skipped": "0.10 GB of memory are left"}


class Fixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 6))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * self.weight


def test_a_model_for_one_size_only_raises_nothing_in_the_training() -> None:
    found, _ = measured(Fixed(), torch.randn(4, 6))
    assert found["skipped"].startswith("it raised RuntimeError")


def test_an_input_of_an_unknown_kind_is_not_doubled() -> None:
    class Reads(Fixed):
        def forward(self, inputs: dict[str, Tensor]) -> Tensor:
            return super().forward(inputs["pixels"])

    found, _ = measured(Reads(), {"pixels": torch.randn(4, 6)})
    assert found == {"skipped": "the model's first argument is no tensor with samples"}


def test_where_torch_does_not_tell_named_arguments_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def older(hook: Any, *, always_call: bool = False) -> Any:
        raise AssertionError("it has no with_kwargs")

    monkeypatch.setattr(torch.nn.modules.module, "register_module_forward_hook", older)
    found, _ = measured(Counting(), torch.randn(5, 6))
    assert found == {"skipped": "this torch does not tell which arguments models are given by name"}
