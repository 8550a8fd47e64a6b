"""Augmentation: what is drawn, and what each operation does to a patch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import ndimage

from flatout.segmentation import intensity
from flatout.segmentation.augment import augment
from flatout.segmentation.draws import NOTHING, Chances, Draw, draw
from flatout.segmentation.warping import affine_matrix, warp

IGNORE = 255


def _patch(size: tuple[int, int, int] = (12, 14, 16)) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(1)
    images = torch.randn(2, 1, *size, generator=source)
    return images, (images[:, 0] > 0).to(torch.uint8)


def test_a_draw_depends_on_the_seed_and_the_sample_alone() -> None:
    assert draw(Chances(), 3, 17) == draw(Chances(), 3, 17)
    assert draw(Chances(), 3, 17) != draw(Chances(), 3, 18)
    assert draw(Chances(), 4, 17).noise_seed != draw(Chances(), 3, 17).noise_seed
    # One operation more or less leaves the others as they are.
    for sample in range(50):
        without = draw(Chances(rotation=0.0, scaling=0.0, blur=0.0), 3, sample)
        assert without.gamma == draw(Chances(), 3, sample).gamma


def test_each_operation_touches_its_share_of_samples_with_values_in_its_range() -> None:
    chances = Chances()
    draws = [draw(chances, 0, sample) for sample in range(4000)]
    for name, share, (low, high), mean in (
        ("scale", chances.scaling, chances.scaling_range, 1.05),
        ("noise", chances.noise, chances.noise_range, 0.05),
        ("brightness", chances.brightness, chances.brightness_range, 1.0),
        ("contrast", chances.contrast, chances.contrast_range, 1.0),
        ("low_resolution", chances.low_resolution, chances.low_resolution_range, 0.75),
        ("inverted_gamma", chances.inverted_gamma, chances.gamma_range, (0.85 + 1.25) / 2),
        ("gamma", chances.gamma, chances.gamma_range, (0.85 + 1.25) / 2),
    ):
        values = np.array([value for one in draws if (value := getattr(one, name)) is not None])
        error = 4 * math.sqrt(share * (1 - share) / len(draws))
        assert abs(len(values) / len(draws) - share) < error, name
        assert low <= values.min() and values.max() <= high, name
        assert abs(values.mean() - mean) < 4 * values.std() / math.sqrt(len(values)), name
    for axis in range(3):
        assert abs(sum(axis in one.mirrored for one in draws) / len(draws) - 0.5) < 0.04
    turned = np.degrees([one.angles for one in draws if one.angles is not None])
    assert abs(len(turned) / len(draws) - chances.rotation) < 0.03
    assert abs(turned).max() <= 30 and abs(turned.std() - 60 / math.sqrt(12)) < 1


def test_nothing_is_nothing_and_a_mirror_is_exact_in_image_and_label() -> None:
    images, labels = _patch()
    same, same_labels = augment(images.clone(), labels.clone(), [draw(NOTHING, 0, n) for n in range(2)], IGNORE)
    assert torch.equal(same, images) and torch.equal(same_labels, labels)
    flipped, flipped_labels = augment(images.clone(), labels.clone(), [Draw(mirrored=(0, 2)), Draw()], IGNORE)
    assert torch.equal(flipped[0], images[0].flip(1, 3)) and torch.equal(flipped_labels[0], labels[0].flip(0, 2))
    assert torch.equal(flipped[1], images[1])


def test_a_quarter_turn_is_exact_and_what_comes_from_beyond_is_left_out() -> None:
    images, labels = _patch((9, 9, 9))
    around_z = affine_matrix((math.pi / 2, 0.0, 0.0), 1.0)
    turned, turned_label = warp(images[0], labels[0], around_z, IGNORE)
    assert torch.allclose(turned, images[0].rot90(-1, (2, 3)), atol=1e-4)
    assert torch.equal(turned_label, labels[0].rot90(-1, (1, 2)))
    _, wide = warp(images[0], labels[0], affine_matrix((0.0, 0.0, 0.0), 2.0), IGNORE)
    assert (wide[:, 0] == IGNORE).all() and (wide[3:6, 3:6, 3:6] != IGNORE).all()


def test_a_turn_in_an_oblong_patch_agrees_with_scipy() -> None:
    smooth = torch.from_numpy(ndimage.gaussian_filter(np.random.default_rng(0).normal(size=(20, 30, 24)), 2)).float()
    matrix = affine_matrix((0.3, -0.2, 0.4), 0.8)
    turned, _ = warp(smooth[None], torch.zeros(20, 30, 24), matrix, IGNORE)
    middle = (np.array(smooth.shape) - 1) / 2
    reference = ndimage.affine_transform(
        smooth.numpy(), matrix.numpy(), middle - matrix.numpy() @ middle, order=1, mode="nearest"
    )
    assert np.abs(turned[0].numpy() - reference).max() < 1e-4


def test_intensities_change_by_their_formulas() -> None:
    image = _patch()[0][0]
    noisy = intensity.add_noise(image, 0.1, 5)
    assert torch.equal(noisy, intensity.add_noise(image, 0.1, 5)) and abs((noisy - image).std() - 0.1) < 0.01
    blurred = intensity.blur(image, (0.5, 1.0, 0.7))
    reference = ndimage.gaussian_filter(image[0].numpy(), (0.5, 1.0, 0.7), mode="mirror", radius=(1, 3, 2))
    assert np.abs(blurred[0].numpy() - reference).max() < 1e-4
    stretched = intensity.contrast(image, 1.25)
    assert torch.allclose(stretched, ((image - image.mean()) * 1.25 + image.mean()).clamp(image.min(), image.max()))
    for inverted in (False, True):
        raised = intensity.gamma(image, 1.4, inverted=inverted)
        assert torch.allclose(raised.mean(), image.mean(), atol=1e-5)
        assert torch.allclose(raised.std(), image.std(), atol=1e-5)
        assert torch.equal(raised.flatten().argsort(), image.flatten().argsort())
    assert torch.allclose(intensity.low_resolution(torch.full((1, 8, 8, 8), 3.0), 0.5), torch.tensor(3.0))


@pytest.mark.parametrize("size", [(8, 16, 24), (16, 16, 16)])
def test_a_batch_is_changed_sample_by_sample_with_everything_on(size: tuple[int, int, int]) -> None:
    images, labels = _patch(size)
    every = Chances(rotation=1, scaling=1, noise=1, blur=1, brightness=1, contrast=1, low_resolution=1,
                    inverted_gamma=1, gamma=1)  # fmt: skip
    draws = [draw(every, 0, sample) for sample in range(2)]
    both, both_labels = augment(images.clone(), labels.clone(), draws, IGNORE)
    alone, alone_labels = augment(images[1:].clone(), labels[1:].clone(), draws[1:], IGNORE)
    assert torch.equal(both[1:], alone) and torch.equal(both_labels[1:], alone_labels)
    assert both.isfinite().all() and set(both_labels.unique().tolist()) <= {0, 1, IGNORE}
