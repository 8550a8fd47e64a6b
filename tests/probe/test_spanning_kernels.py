"""Convolutions of one channel whose kernel spans a dimension: found, timed, and computed in the other one."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from flatout.probe import memory_room
from flatout.probe.injections import Injected, quick_functions
from tests.probe.watched_steps import watched

WIDE, TALL = (8, 1, 40, 60), (8, 1, 60, 40)
LIKE = {
    "wide": (WIDE, {"kernel_size": (3, 60)}),
    "tall": (TALL, {"kernel_size": (60, 3)}),
    "padded": (WIDE, {"kernel_size": (3, 60), "padding": (1, 0)}),
    "strided": (WIDE, {"kernel_size": (4, 60), "stride": (2, 1), "dilation": (3, 1)}),
    "whole": (WIDE, {"kernel_size": (40, 60)}),
    "without bias": (WIDE, {"kernel_size": (3, 60), "bias": False}),
}
OTHERS = {
    "narrow": (WIDE, {"kernel_size": (3, 59)}),
    "padded across": (WIDE, {"kernel_size": (3, 60), "padding": (0, 1)}),
    "strided across": (WIDE, {"kernel_size": (3, 60), "stride": 2}),
    "same": (WIDE, {"kernel_size": (3, 60), "padding": "same"}),
    "small": ((1, 1, 40, 60), {"kernel_size": (3, 60)}),
}


@pytest.fixture
def injected() -> Iterator[Injected]:
    originals = functional.conv2d, torch.jit.script
    found = Injected('{"quick_conv": true}')
    quick_functions.install(found, None)
    yield found
    functional.conv2d, torch.jit.script = originals


@pytest.mark.parametrize("kind", LIKE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_both_passes_give_the_same_but_for_rounding(injected: Injected, kind: str, dtype: torch.dtype) -> None:
    shape, options = LIKE[kind]
    torch.manual_seed(0)
    layer, x = nn.Conv2d(1, 5, **options, dtype=dtype), torch.randn(shape, dtype=dtype, requires_grad=True)
    gradients = []
    for wanted in (None, True):
        injected.switch("quick_conv", wanted)
        y = layer(x)
        gradients.append((y, *torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])))
    for own, quick in zip(*gradients, strict=True):
        torch.testing.assert_close(quick, own, rtol=1e-4, atol=1e-3)
    assert injected.applied == {"quick_conv": True}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_others_are_left_to_torch(injected: Injected, kind: str) -> None:
    shape, options = OTHERS[kind]
    nn.Conv2d(1, 5, **options)(torch.randn(shape))
    assert not injected.applied


@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning", "ignore:.*torch.jit:DeprecationWarning")
def test_more_channels_single_pictures_and_other_tensors_are_left_to_torch(injected: Injected) -> None:
    nn.Conv2d(2, 4, (3, 60))(torch.randn(8, 2, 40, 60))
    nn.Conv2d(1, 4, (3, 60))(torch.randn(1, 400, 60))
    nn.Conv1d(1, 4, 3)(torch.randn(8, 1, 4000))
    with pytest.raises(RuntimeError, match="to have 2 channels"):
        nn.Conv2d(2, 4, (3, 60))(torch.randn(WIDE))
    assert not injected.applied
    layer = nn.Conv2d(1, 4, (3, 60))
    traced: Any = torch.jit.trace(layer, torch.randn(WIDE))
    scripted: Any = torch.jit.script(layer)
    x = torch.randn(WIDE)
    torch.testing.assert_close(scripted(x), traced(x))
    assert "conv1d" not in str(traced.graph)


def test_autocast_and_functorch_see_the_same(injected: Injected) -> None:
    weight, x = torch.randn(5, 1, 3, 60), torch.randn(WIDE)
    with torch.autocast("cpu", torch.bfloat16):
        y = functional.conv2d(x, weight)
    assert y.dtype == torch.bfloat16 and injected.applied
    gradient = torch.func.grad(lambda weight: functional.conv2d(x, weight).square().sum())(weight)
    injected.switch("quick_conv", None)
    own = torch.func.grad(lambda weight: functional.conv2d(x, weight).square().sum())(weight)
    torch.testing.assert_close(gradient, own, rtol=1e-4, atol=1e-2)


def test_they_are_found_and_timed_in_a_watched_step(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = nn.ModuleList([nn.Conv2d(1, 5, (words, 60)) for words in (3, 3, 4)])
    x = torch.randn(WIDE)
    first, second = watched(monkeypatch, lambda: sum((layer(x).sum() for layer in layers), torch.zeros(())))[
        "spanning_kernels"
    ]
    assert (first["calls"], first["input"], first["kernel"]) == (2, list(WIDE), [5, 1, 3, 60])
    assert (second["calls"], second["kernel"]) == (1, [5, 1, 4, 60])
    assert min(*first["plain_ns"], *first["joined_ns"]) > 0 and first["lines"][0][0] == __file__
    monkeypatch.setattr(memory_room, "lacking", lambda: "no memory is left")
    found = watched(monkeypatch, lambda: layers[0](x).sum())["spanning_kernels"]
    assert [one["skipped"] for one in found] == ["no memory is left"]
    assert "spanning_kernels" not in watched(monkeypatch, lambda: nn.Conv2d(1, 5, 3)(x).sum())


def test_the_result_is_no_view(injected: Injected) -> None:
    layer, seen = nn.Conv2d(1, 5, (3, 60)), []
    layer.register_forward_hook(lambda module, args, output: output.register_hook(seen.append) and None)
    nn.Sequential(layer, nn.ReLU(inplace=True))(torch.randn(WIDE)).sum().backward()
    assert len(seen) == 1
    with torch.no_grad():
        y = nn.Conv2d(1, 5, (3, 60))(torch.randn(WIDE))
    y += nn.Parameter(torch.ones(1))
    nn.Conv2d(1, 5, (3, 60))(torch.randn(WIDE)).detach_()
    assert injected.applied


def test_pixels_laid_out_channels_last_are_left_to_torch(injected: Injected) -> None:
    x = torch.randn(WIDE).to(memory_format=torch.channels_last)
    y = nn.Conv2d(1, 5, (3, 60))(x)
    assert y.is_contiguous(memory_format=torch.channels_last) and not injected.applied


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"stride": (1, 1.0)}, TypeError),
        ({"padding": (0, 0.0)}, TypeError),
        ({"groups": 1.0}, TypeError),
        ({"bias": torch.zeros(4)}, RuntimeError),
        ({"stride": 0}, RuntimeError),
        ({"dilation": (30, 1)}, RuntimeError),
    ],
)
def test_what_torch_refuses_is_refused_in_its_words(
    injected: Injected, options: dict[str, Any], error: type[Exception]
) -> None:
    x, weight = torch.randn(WIDE), torch.randn(5, 1, 3, 60)
    with pytest.raises(error) as own:
        torch.conv2d(x, weight, **options)
    with pytest.raises(error) as quick:
        functional.conv2d(x, weight, **options)
    assert str(own.value) == str(quick.value) and not injected.applied


@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning", "ignore:.*torch.jit:DeprecationWarning")
def test_modules_are_scripted_and_the_function_is_pickled(injected: Injected) -> None:
    net = nn.Sequential(nn.Conv2d(1, 5, (3, 60)), nn.ReLU())
    scripted: Any = torch.jit.script(net)
    assert scripted(torch.randn(WIDE)).shape == (8, 5, 38, 1)
    assert pickle.loads(pickle.dumps(functional.conv2d)) is functional.conv2d
    net(torch.randn(WIDE))
    assert injected.applied
