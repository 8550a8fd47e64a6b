"""Gradients that are set to zero before anything uses them: which are found, and that nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from flatout.probe import sites
from flatout.probe.inspection import discarded_gradients
from flatout.probe.inspection.discarded_gradients import DiscardedGradients

Step = Callable[[nn.Module, nn.Module, torch.optim.Optimizer, torch.optim.Optimizer], None]


@pytest.fixture(autouse=True)
def tests_are_the_users_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sites, "is_user_file", lambda path: path == __file__)
    monkeypatch.setattr(discarded_gradients, "names_of", lambda keys: sorted(keys))


@pytest.fixture
def seen() -> Iterator[DiscardedGradients]:
    grad, zero_grad = torch.Tensor.grad, torch.optim.Optimizer.zero_grad
    found = DiscardedGradients()
    end = found.watch()
    yield found
    end()
    assert torch.Tensor.grad is grad and torch.optim.Optimizer.zero_grad is zero_grad
    assert "grad" not in vars(torch.Tensor)


def trained(step: Step, steps: int = 4, seed: int = 0) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(seed)
    first, second = nn.Linear(4, 6), nn.Linear(6, 1)
    optimizers = [torch.optim.Adam(one.parameters(), lr=0.01) for one in (first, second)]
    for _ in range(steps):
        step(first, second, optimizers[0], optimizers[1])
    return first, second


def adversaries(
    generator: nn.Module, critic: nn.Module, of_generator: torch.optim.Optimizer, of_critic: torch.optim.Optimizer
) -> None:
    """The generator's pass goes through the critic, the critic's through the generator."""
    noise = torch.randn(8, 4)
    of_generator.zero_grad()
    (-critic(generator(noise)).mean()).backward()
    of_generator.step()
    of_critic.zero_grad()
    critic(generator(noise)).mean().backward()
    of_critic.step()


def attacked(first: nn.Module, second: nn.Module, one: torch.optim.Optimizer, two: torch.optim.Optimizer) -> None:
    x = torch.randn(8, 4, requires_grad=True)
    second(first(x)).mean().backward()
    gradient = x.grad
    assert gradient is not None
    for each in (one, two):
        each.zero_grad(set_to_none=False)
    second(first(x.detach() + 0.1 * gradient.sign())).mean().backward()
    one.step()
    two.step()


def set_to_none(first: nn.Module, second: nn.Module, one: torch.optim.Optimizer, two: torch.optim.Optimizer) -> None:
    second(first(torch.randn(8, 4))).mean().backward()
    for parameter in [*first.parameters(), *second.parameters()]:
        parameter.grad = None
    second(first(torch.randn(8, 4))).mean().backward()
    one.step()
    two.step()


def of_a_module(first: nn.Module, second: nn.Module, one: torch.optim.Optimizer, two: torch.optim.Optimizer) -> None:
    second(first(torch.randn(8, 4))).mean().backward()
    one.step()
    second.zero_grad()
    first.zero_grad()
    second(first(torch.randn(8, 4)).detach()).mean().backward()
    two.step()
    second.zero_grad()


@pytest.mark.parametrize(
    ("step", "passes", "elements"),
    [
        # Weights and biases: 30 of the first module, 7 of the second.
        (adversaries, 2, [7, 30]),
        (attacked, 1, [37]),
        (set_to_none, 1, [37]),
        (of_a_module, 1, [7]),
    ],
)
def test_gradients_that_are_discarded_are_found(
    seen: DiscardedGradients, step: Step, passes: int, elements: list[int]
) -> None:
    trained(step)
    said = seen.described()
    assert sorted(line[4] for line in said["lines"]) == elements and len(said["lines"]) == passes
    assert all(line[0] == __file__ and line[2] == step.__name__ and line[3] == 4 for line in said["lines"])
    assert said["elements"] == 4 * sum(elements) and seen.avoidable()


def summed_up(first: nn.Module, second: nn.Module, one: torch.optim.Optimizer, two: torch.optim.Optimizer) -> None:
    for _ in range(2):
        second(first(torch.randn(8, 4))).mean().backward()
    for each in (one, two):
        each.step()
        each.zero_grad()


def merged(first: nn.Module, second: nn.Module, one: torch.optim.Optimizer, two: torch.optim.Optimizer) -> None:
    """As in surgery on the gradients of two tasks."""
    second(first(torch.randn(8, 4))).mean().backward()
    parameters = [*first.parameters(), *second.parameters()]
    kept = [parameter.grad.clone() for parameter in parameters if parameter.grad is not None]
    for each in (one, two):
        each.zero_grad()
    second(first(torch.randn(8, 4))).mean().backward()
    for parameter, gradient in zip(parameters, kept, strict=True):
        assert parameter.grad is not None
        parameter.grad += gradient
    one.step()
    two.step()


def measured(first: nn.Module, second: nn.Module, one: torch.optim.Optimizer, two: torch.optim.Optimizer) -> None:
    """As Fisher's information is."""
    second(first(torch.randn(8, 4))).mean().backward()
    torch.nn.utils.clip_grad_norm_([*first.parameters(), *second.parameters()], 1.0)
    for each in (one, two):
        each.zero_grad()
    second(first(torch.randn(8, 4))).mean().backward()
    one.step()
    two.step()


def never_trained(first: nn.Module, second: nn.Module, one: torch.optim.Optimizer, two: torch.optim.Optimizer) -> None:
    second(first(torch.randn(8, 4))).mean().backward()
    one.step()
    one.zero_grad()
    two.zero_grad()


@pytest.mark.parametrize("step", [summed_up, merged, measured, never_trained])
def test_gradients_that_something_uses_are_not(seen: DiscardedGradients, step: Step) -> None:
    trained(step)
    assert not seen.avoidable()
    said = seen.described()
    assert said["lines"] == [] and said["elements"] == 0 and said["passes"][0] >= 4


def test_those_of_a_pass_that_are_used_now_and_then_are_not(seen: DiscardedGradients) -> None:
    count = 0

    def now_and_then(
        first: nn.Module, second: nn.Module, one: torch.optim.Optimizer, two: torch.optim.Optimizer
    ) -> None:
        nonlocal count
        count += 1
        second(first(torch.randn(8, 4))).mean().backward()
        one.step()
        one.zero_grad()
        if count % 3 == 0:
            two.step()
        two.zero_grad()
        second(first(torch.randn(8, 4)).detach()).mean().backward()
        two.step()

    trained(now_and_then, 2)
    assert seen.avoidable()
    trained(now_and_then, 6)
    # A second training has parameters of its own: those of the first stay discarded as far as was seen.
    assert [line[4] for line in seen.described()["lines"]] == [7]


def test_a_gradient_with_a_hook_is_left_alone(seen: DiscardedGradients) -> None:
    def hooked(first: nn.Module, second: nn.Module, one: torch.optim.Optimizer, two: torch.optim.Optimizer) -> None:
        if not second.weight._backward_hooks:
            second.weight.register_hook(lambda gradient: gradient)
        adversaries(first, second, one, two)

    trained(hooked)
    assert sorted(line[4] for line in seen.described()["lines"]) == [1, 30]


@pytest.mark.parametrize("step", [adversaries, attacked, set_to_none, of_a_module])
def test_without_them_the_training_stays_the_same(step: Step) -> None:
    plain: Any = [parameter for module in trained(step, 9) for parameter in module.parameters()]
    found = DiscardedGradients()
    end = found.watch()
    try:
        torch.manual_seed(0)
        first, second = nn.Linear(4, 6), nn.Linear(6, 1)
        optimizers = [torch.optim.Adam(one.parameters(), lr=0.01) for one in (first, second)]
        for place in range(9):
            if place == 4:
                restore = found.leave_out()
            step(first, second, *optimizers)
        restore()
    finally:
        end()
    changed = [*first.parameters(), *second.parameters()]
    assert all(torch.equal(one, other) for one, other in zip(plain, changed, strict=True))


def test_a_graph_that_cannot_be_read_is_said(seen: DiscardedGradients, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_many(tensors: object) -> Any:
        raise ValueError

    monkeypatch.setattr(discarded_gradients.backward_graph, "nodes", too_many)
    trained(adversaries)
    assert seen.described() == {"failed": "the graph of a backward pass could not be read (ValueError)"}
    assert not seen.avoidable()
