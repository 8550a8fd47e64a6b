"""Dropout and binary cross-entropy in quicker ways, and in torch's own where those do not serve."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from flatout.probe.injections import Injected, quick_functions
from flatout.probe.replacements import quick_bce, quick_masks


@pytest.fixture
def injected() -> Iterator[Injected]:
    originals = functional.dropout, functional.binary_cross_entropy, functional.conv2d, torch.jit.script
    found = Injected('{"quick_dropout": true, "quick_bce": true, "quick_conv": true}')
    quick_functions.install(found, None)
    torch.manual_seed(0)
    yield found
    functional.dropout, functional.binary_cross_entropy, functional.conv2d, torch.jit.script = originals  # type: ignore[assignment]


@pytest.mark.parametrize("drop", [0.5, 0.1, 0.25, 0.9, 1 / 256, 255 / 256, 0.005])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_mask_drops_its_part_and_keeps_the_mean(drop: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    like = torch.empty(1000, 333, dtype=dtype)  # no multiple of the elements of a word
    mask = quick_masks.noise(like, drop)
    assert mask.shape == like.shape and mask.dtype == dtype
    kept = (mask != 0).double().mean().item()
    assert kept == pytest.approx(1 - drop, abs=4 * (drop * (1 - drop) / like.numel()) ** 0.5 + 2**-16)
    (scale,) = mask[mask != 0].unique().tolist()
    assert scale * (1 - drop) == pytest.approx(1, rel=0.01 if dtype is torch.bfloat16 else 1e-4)
    # Neighbours, also those of one word, do not depend on each other.
    if 0.05 < drop < 0.95:
        ones = (mask != 0).double().flatten()
        for distance in (1, 2, 3, 4, 8):
            both = (ones[:-distance] * ones[distance:]).mean().item()
            assert both == pytest.approx((1 - drop) ** 2, abs=0.005)


def test_masks_are_drawn_from_the_generator_that_is_seeded() -> None:
    like = torch.empty(5000)
    masks = [quick_masks.noise(like, 0.3, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(masks[0], masks[1]) and not torch.equal(masks[0], masks[2])
    state = torch.get_rng_state()
    quick_masks.noise(like, 0.3, torch.Generator().manual_seed(1))
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("inplace", [False, True])
def test_layers_take_the_masks_and_give_their_gradients(injected: Injected, inplace: bool) -> None:
    x = torch.ones(64, 128, requires_grad=True)
    y = nn.Dropout(0.25, inplace)(x * 1.0)
    y.sum().backward()
    assert x.grad is not None and torch.equal(x.grad, y)
    assert y.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert injected.applied == {"quick_dropout": True}
    attention = nn.MultiheadAttention(64, 2, dropout=0.5)
    attention(*[torch.rand(80, 2, 64)] * 3)  # 2 x 2 x 80 x 80 weights


@pytest.mark.parametrize(
    "x",
    [
        torch.ones(16, 16),  # little to gain
        torch.ones(64, 128).t(),
        torch.ones(64, 128).to_sparse(),
        torch.ones(64, 128, device="meta"),
    ],
)
def test_other_tensors_are_left_to_torch(injected: Injected, x: torch.Tensor) -> None:
    if x.layout is not torch.strided:
        with pytest.raises(RuntimeError):
            functional.dropout(x, 0.5)
    else:
        functional.dropout(x, 0.5)
    assert not injected.applied


def test_nothing_changes_where_nothing_or_hardly_anything_is_dropped(injected: Injected) -> None:
    x = torch.ones(64, 128)
    assert torch.equal(functional.dropout(x, 0.5, training=False), x)
    assert torch.equal(functional.dropout(x, 0.0), x) and not functional.dropout(x, 1.0).any()
    functional.dropout(x, 1e-4)
    with pytest.raises(ValueError, match="between 0 and 1"):
        functional.dropout(x, 1.5)
    assert not injected.applied
    injected.switch("quick_dropout", None)
    torch.manual_seed(1)
    switched_off = functional.dropout(x, 0.5)
    torch.manual_seed(1)
    assert torch.equal(switched_off, torch.dropout(x, 0.5, True)) and not injected.applied


def test_a_model_that_is_scripted_or_traced_keeps_the_dropout_of_torch(injected: Injected) -> None:
    model, x = nn.Sequential(nn.Linear(4, 600), nn.Dropout(0.5)), torch.ones(600, 4)
    replaced = functional.dropout
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # both are deprecated
        warnings.simplefilter("error", torch.jit.TracerWarning)
        assert torch.jit.script(model)(x).shape == (600, 600)
        torch.jit.trace(model, x, check_trace=False)
    assert functional.dropout is replaced and not injected.applied


def entropies(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities, some of which are 0 or 1, and targets."""
    probabilities, target = torch.rand(shape, dtype=dtype), torch.rand(shape, dtype=dtype)
    probabilities.view(-1)[:3] = torch.tensor([0.0, 1.0, -0.0])
    target.view(-1)[:200] = (target.view(-1)[:200] > 0.5).to(dtype)
    return probabilities.requires_grad_(), target


def own_entropy(probabilities: torch.Tensor, target: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """What torch's kernel gives."""
    return torch.ops.aten.binary_cross_entropy(probabilities, target, None, quick_bce.REDUCTIONS[reduction])


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_loss_is_the_same_but_for_rounding_and_its_gradient_bit_for_bit(
    injected: Injected, reduction: str, dtype: torch.dtype
) -> None:
    probabilities, target = entropies((300, 333), dtype)  # more than a block, and no multiple of it
    own = own_entropy(probabilities, target, reduction)
    quick = nn.BCELoss(reduction=reduction)(probabilities, target)
    torch.testing.assert_close(quick, own, rtol=1e-6, atol=2e-6)
    assert injected.applied == {"quick_bce": True}
    weights = torch.rand(own.shape, dtype=dtype)
    gradients = [torch.autograd.grad((loss * weights).sum(), probabilities)[0] for loss in (own, quick)]
    assert torch.equal(*gradients)
    with torch.no_grad():
        assert not functional.binary_cross_entropy(probabilities, target, reduction=reduction).requires_grad


def test_the_gradient_has_a_gradient(injected: Injected) -> None:
    probabilities, target = torch.rand(200, 100).mul(0.8).add(0.1).requires_grad_(), torch.rand(200, 100)
    seconds = []
    for loss in (functional.binary_cross_entropy, own_entropy):
        (first,) = torch.autograd.grad(loss(probabilities, target), probabilities, create_graph=True)
        seconds += torch.autograd.grad(first.square().sum(), probabilities)
    assert torch.equal(*seconds) and injected.applied


def test_what_torch_refuses_is_refused(injected: Injected) -> None:
    probabilities, target = entropies((200, 100))
    for wrong in (1.5, -0.5, 1.0000002, float("nan")):
        with torch.no_grad():
            probabilities[0, 5], target[0, 5] = wrong, 1.0
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            functional.binary_cross_entropy(probabilities, target)
    with pytest.raises(ValueError, match="target size"):
        functional.binary_cross_entropy(probabilities, target[:1])
    with pytest.raises(ValueError, match="is not a valid value for reduction"):
        functional.binary_cross_entropy(probabilities, target, reduction="average")
    probabilities, target = entropies((200, 100))
    for wrong in (1.5, -0.5, 1.000001, float("nan")):
        target[0, 5] = wrong
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            functional.binary_cross_entropy(probabilities, target)
    assert not injected.applied


@pytest.mark.parametrize("away", [6e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-2])
def test_a_loss_near_zero_is_as_exact_as_that_of_torch(injected: Injected, away: float) -> None:
    for probabilities, target in (
        (torch.full((20_000,), 1 - away), torch.ones(20_000)),
        (torch.full((20_000,), away), torch.zeros(20_000)),
    ):
        quick = functional.binary_cross_entropy(probabilities, target)
        torch.testing.assert_close(quick, own_entropy(probabilities, target), rtol=1e-5, atol=0)
    assert injected.applied


def test_a_dispatch_mode_of_the_programs_sees_the_operator_of_torch(injected: Injected) -> None:
    names = []

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    probabilities, target = entropies((200, 100))
    with Watching():
        functional.binary_cross_entropy(probabilities, target)
    assert "binary_cross_entropy.default" in names and not injected.applied


def test_other_losses_are_left_to_torch(injected: Injected) -> None:
    probabilities, target = entropies((200, 100))
    loss = functional.binary_cross_entropy
    loss(probabilities[:50], target[:50])  # little to gain
    loss(probabilities.t(), target.t())
    loss(probabilities, target, weight=target)
    loss(probabilities, target.clone().requires_grad_())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, as what torch calls by itself
        loss(probabilities, target, size_average=False)
        torch.func.vmap(loss)(probabilities.detach().expand(2, 200, 100), target.expand(2, 200, 100))
        torch.func.grad(loss)(probabilities, target)
        with torch.autograd.forward_ad.dual_level():
            loss(torch.autograd.forward_ad.make_dual(probabilities.detach(), target), target)
    injected.switch("quick_bce", None)
    loss(probabilities, target)
    assert not injected.applied


def test_a_loss_that_is_scripted_is_that_of_torch(injected: Injected) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(nn.BCELoss())
    probabilities, target = entropies((200, 100))
    assert torch.equal(scripted(probabilities, target), own_entropy(probabilities, target))
    assert not injected.applied and functional.binary_cross_entropy(probabilities, target) and injected.applied
