"""Cosines of all pairs as a product of matrices: the same but for rounding, and torch's own for anything else."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from flatout.probe.injections import Injected, quick_functions

LIKE: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor, int]]] = {
    "last": lambda x, y: (x[:, None], y[None], -1),
    "the other way": lambda x, y: (x[None], y[:, None], 2),
    "expanded": lambda x, y: (
        x.unsqueeze(1).expand(-1, len(y), -1),
        y.unsqueeze(0).expand(len(x), -1, -1),
        2,
    ),
    "along the second": lambda x, y: (x[:, :, None], y.t()[None], 1),
    "fewer dimensions": lambda x, y: (x[:, None], y, -1),
    "of each sample": lambda x, y: (x.view(5, 10, 1, 64), y.view(5, 1, 12, 64).expand(5, 10, 12, 64), -1),
}


@pytest.fixture
def injected() -> Iterator[Injected]:
    originals = functional.cosine_similarity, torch.jit.script
    found = Injected('{"quick_cosine": true}')
    quick_functions.install(found, None)
    yield found
    functional.cosine_similarity, torch.jit.script = originals


def rows(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(50, 64, dtype=dtype)
    x[3] = 0.0
    return x.requires_grad_(), torch.randn(60, 64, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("name", LIKE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_both_passes_give_the_same_but_for_rounding(
    injected: Injected, monkeypatch: pytest.MonkeyPatch, name: str, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(quick_functions.pair_products, "LEAST_ELEMENTS", 1)
    x, y = rows(dtype)
    given = LIKE[name](x, y)
    found = []
    for wanted in (None, True):
        injected.switch("quick_cosine", wanted)
        similar = nn.CosineSimilarity(dim=given[2])(*given[:2])
        weights = torch.linspace(0, 1, similar.numel(), dtype=dtype).view(similar.shape)
        found.append((similar, *torch.autograd.grad((similar * weights).sum(), [x, y])))
    keep = torch.arange(len(x)) != 3  # torch divides by the least norm there: its gradient is 1e8 times as large
    for own, quick in zip(*found, strict=True):
        assert own.shape == quick.shape
        if own.shape == x.shape:
            own, quick = own[keep], quick[keep]
        torch.testing.assert_close(quick, own, rtol=1e-4, atol=1e-5)
    assert injected.applied == {"quick_cosine": True}


@pytest.mark.parametrize("epsilon", [1e-8, 8.0])
def test_gradients_of_short_rows_are_those_of_torch(injected: Injected, epsilon: float) -> None:
    x, y = (one.detach().double().requires_grad_() for one in rows())
    with torch.no_grad():
        x[5] *= 1e-9
    found = []
    for wanted in (None, True):
        injected.switch("quick_cosine", wanted)
        similar = functional.cosine_similarity(x[:, None], y[None], dim=-1, eps=epsilon)
        found.append(torch.autograd.grad((similar * torch.linspace(0, 1, 60)).sum(), [x, y]))
    keep = torch.arange(len(x)) != 3
    for own, quick in zip(*found, strict=True):
        torch.testing.assert_close(quick[keep] if len(quick) == 50 else quick, own[keep] if len(own) == 50 else own)


def test_a_function_that_is_scripted_calls_torchs_own(injected: Injected) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated
        scripted = torch.jit.script(_scripted)
    x, y = rows()
    assert scripted(x[:, None], y[None]).shape == (50, 60) and not injected.applied


def _scripted(a: Tensor, b: Tensor) -> Tensor:
    return torch.cosine_similarity(a, b, dim=-1) + functional.cosine_similarity(a, b, dim=-1)


OTHERS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "row by row": lambda x, y: functional.cosine_similarity(x, y[:50]),
    "few": lambda x, y: functional.cosine_similarity(x[:10, None], y[None, :10], dim=-1),
    "along what is broadcast": lambda x, y: functional.cosine_similarity(x[:, None], y[None], dim=1),
    "half precision": lambda x, y: functional.cosine_similarity(x[:, None].bfloat16(), y[None].bfloat16(), dim=-1),
    "two types": lambda x, y: functional.cosine_similarity(x[:, None].double(), y[None], dim=-1),
    "both broadcast": lambda x, y: functional.cosine_similarity(
        x[:, None, None].expand(50, 60, 3, 64), y[None, :, None].expand(50, 60, 3, 64), dim=-1
    ),
    "autocast": lambda x, y: _cast(x, y),
}


def _cast(x: Tensor, y: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return functional.cosine_similarity(x[:, None], y[None], dim=-1)


@pytest.mark.parametrize("name", OTHERS)
def test_other_cosines_are_left_to_torch(injected: Injected, name: str) -> None:
    OTHERS[name](*rows())
    assert not injected.applied


@pytest.mark.parametrize(
    ("left", "right", "dim"),
    [((50, 1, 64), (1, 60, 63), 2), ((50, 1, 64), (3, 60, 64), 2), ((50, 1, 64), (1, 60, 64), 3)],
)
def test_what_torch_refuses_is_refused(injected: Injected, left: Any, right: Any, dim: int) -> None:
    with pytest.raises((RuntimeError, IndexError)):
        functional.cosine_similarity(torch.ones(left), torch.ones(right), dim=dim)
    assert not injected.applied


def test_a_gradient_of_the_gradient_and_transforms_work(injected: Injected) -> None:
    x, y = rows(torch.float64)
    similar = functional.cosine_similarity(x[:, None], y[None], dim=-1)
    (first,) = torch.autograd.grad(similar.pow(2).sum(), y, create_graph=True)
    assert torch.autograd.grad(first.pow(2).sum(), y)[0].isfinite().all() and injected.applied
    torch.func.vmap(lambda one: functional.cosine_similarity(one[:, None], y[None], dim=-1))(x.expand(2, 50, 64))
