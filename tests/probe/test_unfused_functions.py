"""Functions that give what one of torch's gives: recognised, timed, and replaced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from flatout.probe import in_place, memory_room
from flatout.probe.injections import Injected, fused_functions
from flatout.probe.recorder import REC
from flatout.probe.replacements import recognized_functions
from tests.probe import written_out
from tests.probe.watched_steps import watched

MODULES: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "Norm": (written_out.Norm(64), (4, 32, 64)),
    "BertNorm": (written_out.BertNorm(64), (128, 64)),
    "OfChannels": (written_out.OfChannels(16), (4, 16, 8, 9)),
    "OfSamples": (written_out.OfSamples(16), (5, 16, 70)),
    "OfEachChannel": (written_out.OfEachChannel(), (5, 16, 9, 8)),
    "Swish": (written_out.Swish(), (4, 32, 64)),
}
GIVES = {"Norm": "layer_norm", "BertNorm": "layer_norm", "OfChannels": "layer_norm", "Swish": "silu"}
GIVES |= {"OfSamples": "group_norm", "OfEachChannel": "instance_norm"}
FUNCTIONS = {"gelu": "gelu", "exact_gelu": "gelu", "mish": "mish", "softmax": "softmax"}
OTHERS = ("of_batch", "of_all", "own", "in_place", "straight_through", "masked_softmax", "clamped", "without_nan")


def recognized(function: Any, owner: nn.Module | None, shape: tuple[int, ...]) -> Any:
    def call(owner, x):
        return function(x) if owner is None else function(owner, x)

    return recognized_functions.recognize(
        call, owner, torch.randn(shape), recognized_functions.numbers_of(function, owner)
    )


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_recognized_by_what_they_give(name: str) -> None:
    module, shape = MODULES[name]
    torch.manual_seed(0)
    found = recognized(type(module).forward, module, shape)
    assert found.name == GIVES[name] and f"F.{found.name}(" in found.code
    drawn = torch.rand(1)
    torch.manual_seed(0)
    torch.randn(shape)
    assert torch.equal(torch.rand(1), drawn)
    x = torch.randn(shape, requires_grad=True)
    passes = [gradients(call, module, x) for call in (module, lambda x: found.compute(module, x))]
    for one, other in zip(*passes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def gradients(call: Any, module: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    y = call(x)
    return [y, *torch.autograd.grad(y.square().sum(), [x, *module.parameters()])]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_recognized(name: str) -> None:
    assert recognized(getattr(written_out, name), None, (64, 128)).name == FUNCTIONS[name]


@pytest.mark.parametrize("name", OTHERS)
def test_what_gives_something_else_or_has_other_gradients_is_not(name: str) -> None:
    assert recognized(getattr(written_out, name), None, (64, 128)) is None


def test_neither_is_a_norm_without_a_part_of_its_gradient_or_with_other_sizes() -> None:
    frozen = written_out.HalfFrozen(64)
    assert recognized(type(frozen).forward, frozen, (64, 64)) is None
    assert not recognized_functions._is_module(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))
    assert not recognized_functions._is_module(nn.BatchNorm1d(4))
    number = written_out.Norm(64).double()
    assert recognized(written_out.Norm.forward, number, (64, 64)) is None  # its weights are of another type


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.first, self.second = written_out.Norm(64), nn.Linear(64, 64), nn.Linear(64, 8)

    def forward(self, x):
        return self.second(written_out.gelu(self.first(self.norm(x))) + written_out.printed(x))


def test_calls_of_a_step_are_counted_and_timed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, x = Encoder(), torch.randn(32, 4, 64)
    found = watched(monkeypatch, lambda: encoder(encoder(x).repeat(1, 1, 8)).sum())["unfused_functions"]
    assert sorted((one["name"], one["calls"], one["input"]) for one in found) == [
        ("gelu", 2, [32, 4, 64]),
        ("layer_norm", 2, [32, 4, 64]),
    ]
    assert all(one["plain_ns"] and one["joined_ns"] for one in found)
    [[file, _, name, calls]] = next(one for one in found if one["name"] == "gelu")["lines"]
    assert (file.rsplit("/", 1)[1], name, calls) == ("written_out.py", "gelu", 2)
    assert capsys.readouterr().out.count("32") == 4  # by the step alone: what prints is not asked


def test_without_memory_and_under_autocast_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    norm, x = written_out.Norm(64), torch.randn(32, 4, 64)

    monkeypatch.setitem(REC.process, "autocast", "bfloat16")
    assert "unfused_functions" not in watched(monkeypatch, lambda: norm(x).sum())
    monkeypatch.delitem(REC.process, "autocast")
    monkeypatch.setattr(memory_room, "lacking", lambda: "no memory is left")
    assert "unfused_functions" not in watched(monkeypatch, lambda: norm(x).sum())


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> Iterator[Injected]:
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)
    names = ("Norm.forward", "gelu", "softmax", "own", "Listed.forward", "Noisy.forward", "Counting.forward", "nowhere")
    given = ",".join(f"written_out.py:{name}" for name in names)
    injected = Injected(f'{{"fused_functions": "{given}"}}')
    fused_functions.install(injected, None)
    torch.ones(1, requires_grad=True).sum().backward()
    yield injected
    for name in ("gelu", "softmax", "own"):
        in_place.restore(getattr(written_out, name))
    for kind in (written_out.Norm, written_out.Listed, written_out.Noisy, written_out.Counting):
        in_place.restore(kind.forward)


def test_functions_are_replaced(replaced: Injected, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    for name in ("layer_norm", "gelu"):
        own = getattr(F, name)
        monkeypatch.setattr(
            F, name, lambda *args, own=own, name=name, **given: called.append(name) or own(*args, **given)
        )
    norm, x = written_out.Norm(64), torch.randn(32, 4, 64, requires_grad=True)
    norm(x), written_out.gelu(x), written_out.gelu(x, 0.25), written_out.own(x)
    called.clear()
    found = [
        norm(x),
        written_out.gelu(x),
        written_out.gelu(x, 0.25),
        written_out.own(x),
        checkpoint(norm, x, use_reentrant=False),
    ]
    assert called == ["layer_norm", "gelu"]  # and not in the checkpoint, which saves tensors elsewhere
    sum(one.sum() for one in found).backward()
    replaced.switch("fused_functions", None)
    plain = [norm(x), written_out.gelu(x), written_out.gelu(x, 0.25), written_out.own(x)]
    for one, other in zip(found, plain, strict=False):
        torch.testing.assert_close(one, other)
    assert called == ["layer_norm", "gelu"]
    assert replaced.applied
    small = written_out.Norm(8)
    torch.testing.assert_close(small(torch.ones(2, 8)), torch.zeros(2, 8))


def test_what_is_not_there_or_differs_later_is_left_alone(replaced: Injected, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(20):
        torch.ones(1, requires_grad=True).sum().backward()
    assert "written_out.py:nowhere: there is no such function" in replaced.refused["fused_functions"]
    monkeypatch.setattr(fused_functions, "_AGAIN", 2)
    norm, x = written_out.Listed(64), torch.randn(32, 4, 64)
    for norm.added[0] in (1e-6, 1e-6, 1.0, 1.0, 1.0):
        found = norm(x)
    torch.testing.assert_close(found, (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1.0))
    refused = replaced.refused["fused_functions"]
    assert "Listed.forward: it gives something else than F.layer_norm" in refused
    assert "Counting.forward: it stores something" in refused


def test_what_an_attribute_says_is_asked_again(replaced: Injected) -> None:
    norm, x = written_out.Norm(64), torch.randn(32, 4, 64)
    for norm.eps in (1e-6, 1.0, 1e-6):
        found = norm(x)
        torch.testing.assert_close(found, (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + norm.eps))
    noisy = written_out.Noisy(64)
    noisy(x)
    noisy.noise = 0.5
    assert not torch.allclose(noisy(x), noisy(x))
    torch.manual_seed(0)
    noisy(x)
    drawn = torch.rand(1)
    torch.manual_seed(0)
    torch.randn_like(x)
    assert torch.equal(torch.rand(1), drawn)


def test_what_the_program_may_do_with_input_and_result_it_still_may(replaced: Injected) -> None:
    norm, x = written_out.BertNorm(64), torch.randn(32, 4, 64)
    plain = written_out.Norm(64)
    for _ in range(2):  # the first call asks
        torch.utils.checkpoint.checkpoint(plain, x.clone().requires_grad_(), use_reentrant=False).sum().backward()
        given = x.clone().requires_grad_() * 1.0
        weights = written_out.softmax(given)
        weights *= 0.5
        weights.sum().backward()
        plain(x.transpose(0, 1)).transpose(0, 1).view(32, -1)
    fused = recognized(written_out.BertNorm.forward, norm, (32, 4, 64))
    given = x.clone().requires_grad_() * 1.0
    found = fused.compute(norm, given)
    given += found
    given.sum().backward()
    assert replaced.applied


def test_where_torch_does_not_tell_of_checkpoints_nothing_is_replaced(
    replaced: Injected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recognized_functions, "_hooks", None)
    norm = written_out.Norm(64)
    for _ in range(2):
        norm(torch.randn(32, 4, 64))
    assert not replaced.applied


def test_functions_that_call_others_or_have_hooks_inside_are_left_alone() -> None:
    assert recognized_functions.may_be_seen_elsewhere(written_out.calling) == "it calls own"
    swish = written_out.Swish()
    code = written_out.Swish.forward.__code__
    assert recognized_functions.arguments(code, [swish, torch.ones(2)]) is not None
    swish.sigmoid.register_forward_hook(lambda *given: None)
    assert recognized_functions.arguments(code, [swish, torch.ones(2)]) is None
