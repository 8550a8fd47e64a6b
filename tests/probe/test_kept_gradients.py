"""Gradients that are discarded are not computed, and what the training computes with stays the same, bit for bit."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from flatout.probe import sites
from flatout.probe.injections import Injected, kept_gradients
from flatout.probe.recorder import REC
from tests.probe.test_injections import trained

SCRIPT = """
import json
import torch
from torch import nn

KINDS = %s
computed = [0]

class Counted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        computed[0] += 1
        return gradient

class Layer(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(0.3 * torch.randn(inputs, outputs))

    def forward(self, x):
        return x @ Counted.apply(self.weight)

def train(kind):
    torch.manual_seed(0)
    generator, critic = Layer(4, 6), Layer(6, 1)
    of_generator = torch.optim.Adam(generator.parameters(), 0.01)
    of_critic = torch.optim.Adam(critic.parameters(), 0.01, fused=kind == "fused")
    scaler = torch.amp.GradScaler("cpu", enabled=kind == "scaled")
    losses = []
    views, nodes, got = [], [], []
    if kind == "views":
        critic.weight.grad = torch.zeros_like(critic.weight)
        views.append(critic.weight.grad[0])
    if kind == "nodes":
        nodes.append(critic.weight.view_as(critic.weight).grad_fn.next_functions[0][0])
    seldom = kind == "seldom"  # the generator trains in every fourth step, and its outputs are not detached
    for step in range(40 if seldom else 20):
        if step == (30 if seldom else 10):
            computed[0] = 0
        noise, real = torch.randn(8, 4), torch.randn(8, 6)
        if not seldom or step %% 4 == 3:
            fake = generator(noise)
            of_generator.zero_grad()
            loss = -critic(fake).mean()
            scaler.scale(loss).backward()
            if kind == "hooked later" and step == 12:
                critic.weight.register_hook(lambda gradient: gradient)
            if kind == "nodes" and step == 12:
                nodes[0].register_hook(lambda inputs, outputs: got.append(float(outputs[0].sum())))
            got.extend(float(view.sum()) for view in views)
            if kind == "read later" and step == 13:
                norm = critic.weight.grad.norm()
            if kind == "used later" and step == 13:
                of_critic.step()
            scaler.step(of_generator)
        if kind != "summed up":
            of_critic.zero_grad(set_to_none=kind not in ("set to zero", "views"))
        fake = generator(noise) if seldom else fake.detach()
        difference = critic(fake) - critic(real)
        loss = difference.mean() + difference.pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(of_critic)
        scaler.update()
        if kind == "summed up":
            of_critic.zero_grad()
        losses.append(loss.item())
    weights = [float(p.double().sum()) for p in (generator.weight, critic.weight)]
    return {"losses": losses, "weights": weights, "got": got, "late": computed[0]}

print(json.dumps({kind: train(kind) for kind in KINDS}))
"""
LEFT_OUT = ["simple", "set to zero", "scaled", "fused", "hooked later", "seldom"]
SUMMED = "summed up"
HELD = ["views", "nodes"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each training saw without the setting."""
    script = tmp_path_factory.mktemp("plain") / "train.py"
    script.write_text(SCRIPT % [*LEFT_OUT, *HELD, "used later", "read later", SUMMED])
    return trained(script)[0]


def changed_training(tmp_path: Path, kind: str) -> tuple[dict[str, Any], str]:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT % [kind])
    seen, said = trained(script, kept_gradients=True)
    return seen[kind], said


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["simple", *(pytest.param(kind, marks=pytest.mark.slow) for kind in LEFT_OUT[1:4])])
def test_the_training_is_the_same_and_fewer_gradients_are_computed(
    tmp_path: Path, plain: dict[str, dict[str, Any]], kind: str
) -> None:
    changed, said = changed_training(tmp_path, kind)
    assert "could not be set" not in said
    assert plain[kind]["late"] == 40
    assert changed == plain[kind] | {"late": 30}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HELD)
def test_gradients_that_other_code_holds_are_computed(
    tmp_path: Path, plain: dict[str, dict[str, Any]], kind: str
) -> None:
    changed, _ = changed_training(tmp_path, kind)
    assert plain[kind]["got"] and plain[kind]["late"] == 40
    assert changed == plain[kind]


@pytest.mark.slow
def test_a_hook_gets_its_gradient(tmp_path: Path, plain: dict[str, dict[str, Any]]) -> None:
    changed, said = changed_training(tmp_path, "hooked later")
    assert "could not be set" not in said
    assert changed == plain["hooked later"] | {"late": 37}


@pytest.mark.slow
def test_a_network_that_is_updated_seldom_is_waited_for(tmp_path: Path, plain: dict[str, dict[str, Any]]) -> None:
    changed, said = changed_training(tmp_path, "seldom")
    assert "could not be set" not in said
    assert plain["seldom"]["late"] == 36
    assert changed == plain["seldom"] | {"late": 23}


@pytest.mark.slow
def test_gradients_that_are_summed_up_are_all_used(tmp_path: Path, plain: dict[str, dict[str, Any]]) -> None:
    changed, said = changed_training(tmp_path, SUMMED)
    assert changed == plain[SUMMED]
    assert "kept_gradients could not be set" in said and "no gradient is set to zero before it is used" in said


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["used later", pytest.param("read later", marks=pytest.mark.slow)])
def test_a_gradient_that_is_used_after_all_is_noticed(
    tmp_path: Path, plain: dict[str, dict[str, Any]], kind: str
) -> None:
    changed, said = changed_training(tmp_path, kind)
    assert "kept_gradients could not be set" in said and "train.py:49 is used after all" in said
    assert changed["late"] == 36 and changed["losses"][:13] == plain[kind]["losses"][:13]


@pytest.fixture
def injected() -> Iterator[Injected]:
    """The setting in this process; what it replaces is put back."""
    before = torch.autograd.backward, torch.optim.Optimizer.zero_grad, torch.nn.Module.zero_grad
    found = Injected('{"kept_gradients": true}')
    kept_gradients.install(found, None)
    yield found
    assert before == (torch.autograd.backward, torch.optim.Optimizer.zero_grad, torch.nn.Module.zero_grad)
    assert "grad" not in vars(torch.Tensor)


def stepped(layer: nn.Module, steps: int = 1) -> None:
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        layer(torch.ones(2, 3)).sum().backward()
        optimizer.step()


def test_other_processes_and_compiled_models_get_all_gradients(
    injected: Injected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    stepped(nn.Linear(3, 1))
    assert "other processes" in injected.refused["kept_gradients"]
    monkeypatch.undo()
    compiled = Injected('{"kept_gradients": true}')
    kept_gradients.install(compiled, None)
    monkeypatch.setattr(REC, "process", {"compiled": True})
    stepped(nn.Linear(3, 1))
    assert "a compiled backward pass" in compiled.refused["kept_gradients"]


def test_an_optimizer_that_never_steps_is_not_waited_for(injected: Injected) -> None:
    idle = torch.optim.SGD(nn.Linear(3, 1).parameters(), 0.1)
    stepped(nn.Linear(3, 1), 8)
    assert "its first steps" in injected.refused["kept_gradients"]
    stepped(nn.Linear(3, 1), kept_gradients.MOST_LOOKED_AT)
    assert injected.refused["kept_gradients"] == "no gradient is set to zero before it is used"
    assert idle.param_groups


def test_a_graph_that_cannot_be_read_ends_it(injected: Injected, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_many(tensors: object) -> Any:
        raise ValueError

    monkeypatch.setattr(kept_gradients.backward_graph, "nodes", too_many)
    monkeypatch.setattr(kept_gradients.live_objects, "optimizers", list)
    stepped(nn.Linear(3, 1), 8)
    assert "could not be read" in injected.refused["kept_gradients"]


def test_parameters_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sites, "is_user_file", lambda path: path == __file__)
    monkeypatch.setattr(kept_gradients.live_objects, "optimizers", list)
    injected = Injected('{"kept_gradients": true}')
    steps = kept_gradients._Steps(injected)

    def adversaries() -> None:
        layers = nn.Linear(3, 4), nn.Linear(4, 1)
        first, second = (torch.optim.SGD(layer.parameters(), 0.1) for layer in layers)
        for _ in range(8):
            first.zero_grad()
            layers[1](layers[0](torch.ones(2, 3))).sum().backward()
            first.step()
            second.zero_grad()
            layers[1](layers[0](torch.ones(2, 3)).detach()).sum().backward()
            second.step()

    adversaries()
    gc.collect()
    assert injected.applied == {"kept_gradients": True}
    assert not steps.pending and not any(steps._left_out.values()) and all(one() is None for one in steps._parameters)
    steps._give_up("the test is over")
