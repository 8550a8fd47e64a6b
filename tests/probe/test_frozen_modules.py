"""Modules that do not train are timed; those that train, draw or change are not among them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from flatout.probe.experiments.asked_twice import run as asked_twice  # noqa: E402
from flatout.probe.inspection import frozen_modules  # noqa: E402
from flatout.probe.inspection.frozen_modules import FrozenModules  # noqa: E402

STEPS = 3


class Net(nn.Module):
    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head = backbone, nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        return self.head(self.backbone(x))


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.ReLU())


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], dict[str, Any] | None]:
    monkeypatch.setattr(frozen_modules.REC, "training_thread", threading.get_ident())

    def look(step: Callable[[], Any]) -> dict[str, Any] | None:
        watched = FrozenModules()
        end = watched.watch()
        for _ in range(STEPS):
            step()
            watched.step_ended()
        end()
        return watched.described()

    return look


def names(found: dict[str, Any] | None) -> list[str]:
    return [row[0] for row in found["modules"]] if found is not None else []


def test_a_frozen_backbone_is_named_with_what_it_gives(seen: Any) -> None:
    net = Net(layers().requires_grad_(False).eval())
    found = seen(lambda: net(torch.rand(4, 8)).sum().backward())
    assert names(found) == ["Net.backbone"]
    (_, ns, calls, given, samples), steps = found["modules"][0], found["steps"]
    assert 0 < ns == found["ns"] and (calls, steps) == (STEPS, STEPS)
    assert (given, samples) == (STEPS * 4 * 8 * 4, STEPS * 4)


def test_a_backbone_made_in_inference_mode_is_named_too(seen: Any) -> None:
    with torch.inference_mode():
        backbone = layers().requires_grad_(False).eval()
    net = Net(backbone)

    def step() -> None:
        with torch.inference_mode():
            features = net.backbone(torch.rand(4, 8))
        net.head(features.clone()).sum().backward()

    assert names(seen(step)) == ["Net.backbone"]


def test_an_encoder_without_gradients_is_named_by_itself(seen: Any) -> None:
    encoder, head = layers().eval(), nn.Linear(8, 2)

    def step() -> None:
        with torch.no_grad():
            features = encoder(torch.rand(4, 8))
        head(features).sum().backward()

    assert names(seen(step)) == ["Sequential"]


def test_layers_of_a_frozen_chain_are_each_named(seen: Any) -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 2))
    net[0].requires_grad_(False)
    net[2].requires_grad_(False)
    assert sorted(names(seen(lambda: net(torch.rand(4, 8)).sum().backward()))) == ["Sequential.0", "Sequential.2"]


@pytest.mark.parametrize(
    "kind", ["trained", "in training mode", "updated", "averaged", "its input is trained", "in a thread"]
)
def test_what_does_not_give_the_same_is_not_named(seen: Any, kind: str) -> None:
    net = Net(layers().requires_grad_(kind == "trained").train(kind == "in training mode"))
    if kind == "in training mode":  # the layers that are the same may be, the whole is not
        net.backbone = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(8)).requires_grad_(False)
    before = nn.Linear(8, 8)

    def step() -> None:
        x = torch.rand(4, 8)
        if kind == "its input is trained":
            x = before(x)
        if kind == "in a thread":
            thread = threading.Thread(target=lambda: net.backbone(x))
            thread.start()
            thread.join()
            return
        net(x).sum().backward()
        if kind == "updated":
            with torch.no_grad():
                for weight in net.backbone.parameters():
                    weight.mul_(0.99)
        if kind == "averaged":
            for weight in net.backbone.parameters():
                weight.data.mul_(0.99)

    assert seen(step) is None


def test_a_call_that_raises_does_not_count(seen: Any) -> None:
    class Fails(nn.Linear):
        def forward(self, x: Any) -> Any:
            raise KeyError

    net, broken = Net(layers().requires_grad_(False).eval()), Fails(8, 8)

    def step() -> None:
        with pytest.raises(KeyError):
            nn.Sequential(broken)(torch.rand(4, 8))
        net(torch.rand(4, 8)).sum().backward()

    assert names(seen(step)) == ["Net.backbone"]


class Loader:
    def __init__(self, data_set: Any) -> None:
        self._dataset = data_set


@pytest.mark.parametrize(
    ("sample", "found"),
    [
        (lambda index: torch.full((3,), index), [3, 3]),
        (lambda index: torch.rand(3), [3, 0]),
        (lambda index: iter([index]), None),
    ],
)
def test_samples_are_asked_for_twice(sample: Callable[[int], Any], found: list[int] | None) -> None:
    class Samples:
        def __getitem__(self, index: int) -> Any:
            return sample(index)

    assert asked_twice(Loader(Samples()), [[0, 1], [1, 2]]) == found


def test_an_index_that_is_no_batch_is_one(seen: Any) -> None:
    assert asked_twice(Loader([torch.zeros(2), torch.ones(2)]), [0, 1]) == [2, 2]
    assert asked_twice(Loader([]), []) is None


def test_a_module_may_give_its_parameters_as_a_list(seen: Any) -> None:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.ParameterList([nn.Parameter(torch.rand(8, 8), requires_grad=False)])

        def forward(self, x: Any) -> Any:
            return x @ self.weights[0]

        def parameters(self, recurse: bool = True) -> Any:
            return self.weights

    net = Net(Encoder().eval())
    assert names(seen(lambda: net(torch.rand(4, 8)).sum().backward())) == ["Net.backbone"]
