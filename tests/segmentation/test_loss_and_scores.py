"""Loss, Dice and networks: against references, with voxels left out, at several resolutions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from flatout.errors import UsageError
from flatout.segmentation.dice import dice_scores, mean_dice, overlap_counts
from flatout.segmentation.loss import SegmentationLoss, at_size
from flatout.segmentation.networks import build_unet, lay_out

IGNORE = 255


def _case() -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(0)
    return (
        torch.randn(2, 3, 8, 8, 8, generator=source, requires_grad=True),
        torch.randint(0, 3, (2, 8, 8, 8), generator=source, dtype=torch.uint8),
    )


def test_the_loss_is_cross_entropy_minus_dice() -> None:
    logits, labels = _case()
    one_hot = F.one_hot(labels.long(), 3).movedim(-1, 1).float()
    probabilities = logits.softmax(1)
    over = (0, 2, 3, 4)
    dice = 2 * (probabilities * one_hot).sum(over) / (probabilities.sum(over) + one_hot.sum(over))
    expected = F.cross_entropy(logits, labels.long()) - dice[1:].mean()
    assert torch.allclose(SegmentationLoss(IGNORE)(logits, labels), expected, atol=1e-6)


def test_voxels_left_out_change_neither_the_loss_nor_its_gradient() -> None:
    logits, labels = _case()
    labels[:, :, :3] = IGNORE
    loss = SegmentationLoss(IGNORE)
    (gradient,) = torch.autograd.grad(loss(logits, labels), logits)
    assert (gradient[:, :, :, :3] == 0).all() and (gradient[:, :, :, 3:] != 0).any()
    part = loss(logits[:, :, :, 3:], labels[:, :, 3:])
    assert torch.allclose(loss(logits, labels), part, atol=1e-6)
    assert loss(logits, torch.full_like(labels, IGNORE)).isfinite()


def test_resolutions_weigh_half_as_much_from_one_to_the_next() -> None:
    logits, labels = _case()
    small = torch.randn(2, 3, 4, 4, 4, generator=torch.Generator().manual_seed(1))
    loss = SegmentationLoss(IGNORE)
    both = loss([logits, small], labels)
    assert torch.allclose(both, (2 * loss(logits, labels) + loss(small, at_size(labels, (4, 4, 4)))) / 3)
    assert torch.equal(at_size(labels, (4, 8, 2)), labels[:, 1::2, :, 2::4])


def test_dice_agrees_with_counting_and_an_absent_class_has_none() -> None:
    draw = np.random.default_rng(0)
    predicted, labels = draw.integers(0, 3, (2, 6, 6, 6)), draw.integers(0, 3, (2, 6, 6, 6))
    labels[0, 0] = IGNORE
    counts = overlap_counts(torch.from_numpy(predicted), torch.from_numpy(labels), 4, IGNORE)
    kept = labels != IGNORE
    for index in range(3):
        here, there = (predicted == index) & kept, labels == index
        assert float(dice_scores(counts)[index]) == pytest.approx(2 * (here & there).sum() / (here.sum() + there.sum()))
    assert dice_scores(counts)[3].isnan()
    assert mean_dice(counts) == pytest.approx(float(dice_scores(counts)[1:3].mean()))


@pytest.mark.parametrize("kind", ["plain-unet", "residual-encoder-unet"])
def test_a_network_has_an_output_for_each_resolution_while_it_trains(kind: str) -> None:
    layout = lay_out((16, 32, 32), (4, 8, 8), (1, 1, 1))
    assert layout.strides == ((1, 1, 1), (2, 2, 2), (2, 2, 2))
    network = build_unet(kind, layout, channels=1, classes=2, deep_supervision=True)
    images = torch.randn(1, 1, 16, 32, 32)
    torch.manual_seed(0)
    made = network(images)
    assert [tuple(level.shape[2:]) for level in made] == [(16, 32, 32), (8, 16, 16)]
    made[0].sum().backward()
    gradients = [parameter.grad for parameter in network.parameters()]
    network.zero_grad()
    network.checkpoint_activations()
    network(images)[0].sum().backward()
    for before, parameter in zip(gradients, network.parameters(), strict=True):
        assert (before is None and parameter.grad is None) or torch.allclose(before, parameter.grad, atol=1e-5)
    with torch.inference_mode():
        assert tuple(network.eval()(images).shape) == (1, 2, 16, 32, 32)


def test_a_patch_that_cannot_be_halved_is_refused_with_the_nearest_sizes() -> None:
    with pytest.raises(UsageError, match="give 64 × 128 × 128 or 80 × 144 × 144"):
        lay_out((72, 136, 136), (8,) * 5, (1,) * 5)
    with pytest.raises(UsageError, match="3 fit"):
        lay_out((16, 16, 16), (8,) * 5, (1,) * 5)
    assert lay_out((16, 64, 64), (8,) * 5, (1,) * 5).divisors == (4, 16, 16)
