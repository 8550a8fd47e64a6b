"""A canvas is padded where a mask or sizes in the batch say so; a dark border may be data."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from flatout.probe.inspection.gradients import UnusedGradients
from flatout.probe.inspection.repeated_weights import RepeatedWeights
from flatout.probe.padding.first_batches import PaddingSeen

COUNT, HEIGHT, WIDTH, DEPTH = 4, 48, 40, 16


def sizes_of(number: int, sides: tuple[int, ...] = (HEIGHT, WIDTH)) -> torch.Tensor:
    generator = torch.Generator().manual_seed(number)
    return torch.stack([torch.randint(9, side, (COUNT,), generator=generator) for side in sides], 1)


def mask_of(sizes: torch.Tensor, sides: tuple[int, ...] = (HEIGHT, WIDTH)) -> torch.Tensor:
    kept = torch.zeros(len(sizes), *sides)
    for sample, size in zip(kept, sizes.tolist(), strict=True):
        sample[tuple(slice(0, one) for one in size)] = 1
    return kept


def pictures_of(mask: torch.Tensor, channels: int = 3) -> torch.Tensor:
    return (torch.rand(len(mask), channels, *mask.shape[1:]) + 0.1) * mask[:, None]


def seen(*batches: Any, shapes: Any = None) -> dict[str, Any]:
    padding = PaddingSeen()
    for batch in batches:
        padding.look(batch, on_device=True)
        padding.keep(shapes)
    return padding.described()


SIZES = [sizes_of(number) for number in range(4)]
MASKS = [mask_of(sizes) for sizes in SIZES]
VOLUME = (DEPTH, HEIGHT, WIDTH)
VOLUMES = [mask_of(sizes_of(number, VOLUME), VOLUME) for number in range(4)]
MIDDLE = torch.zeros(COUNT, HEIGHT, WIDTH)
MIDDLE[:, 10:39, 6:35] = 1

PADDED = {
    "mask with a channel": [(pictures_of(mask), mask[:, None]) for mask in MASKS],
    "mask of padding": [(pictures_of(mask), mask == 0) for mask in MASKS],
    "another filling": [(pictures_of(mask) + 0.5 * (1 - mask[:, None]), mask) for mask in MASKS],
    "grey pictures": [{"pixel_values": pictures_of(mask, 1), "pixel_mask": mask.long()} for mask in MASKS],
    "sizes": [(pictures_of(mask), sizes) for mask, sizes in zip(MASKS, SIZES, strict=True)],
    "volumes": [(pictures_of(mask, 1), mask[:, None]) for mask in VOLUMES],
    "other corner": [(pictures_of(mask).flip(2, 3), mask.flip(1, 2)) for mask in MASKS],
    "in the middle": [(pictures_of(MIDDLE), MIDDLE) for _ in MASKS],
}


@pytest.mark.parametrize("name", PADDED)
def test_a_padded_canvas_is_found_with_the_positions_of_each_sample(name: str) -> None:
    found = seen(*PADDED[name])
    masks = VOLUMES if name == "volumes" else [MIDDLE] * 4 if name == "in the middle" else MASKS
    sides = tuple(masks[0].shape[1:])
    assert found["sides"] == sides
    assert found["batches"] == [[masks[0][0].numel(), *mask.flatten(1).sum(1).int().tolist()] for mask in masks]
    assert found["evidence"] == ("lengths" if name == "sizes" else "mask")
    assert found["part"] > 0.9


def test_a_batch_whose_samples_fill_the_canvas_counts_too() -> None:
    whole = torch.ones(COUNT, HEIGHT, WIDTH)
    found = seen(*[(pictures_of(mask), mask) for mask in (*MASKS, whole)])
    assert found["batches"][-1] == [HEIGHT * WIDTH] * (1 + COUNT)


def rectangles() -> torch.Tensor:
    mask = torch.zeros(COUNT, HEIGHT, WIDTH)
    for number, sample in enumerate(mask):
        sample[5 * number : 5 * number + 12, 3 * number + 2 : 20] = 1
    return mask


NOT_PADDED = {
    "dark border": [(pictures_of(mask), torch.arange(COUNT)) for mask in MASKS],
    "segmentation": [(torch.rand(COUNT, 3, HEIGHT, WIDTH), mask) for mask in MASKS],
    "objects on a dark ground": [(pictures_of(rectangles()), rectangles()) for _ in MASKS],
    "a round mask": [(pictures_of(m), m) for m in [(torch.rand(COUNT, HEIGHT, WIDTH) > 0.4).float()] * 4],
    "classes of pixels": [(torch.rand(COUNT, 3, HEIGHT, WIDTH), mask.long() * 3) for mask in MASKS],
    "whole mask": [(torch.rand(COUNT, 3, HEIGHT, WIDTH), torch.ones(COUNT, HEIGHT, WIDTH)) for _ in MASKS],
    "boxes of objects": [(torch.rand(COUNT, 3, HEIGHT, WIDTH), sizes) for sizes in SIZES],
    "empty": [(pictures_of(mask * 0), mask * 0) for mask in MASKS],
}


@pytest.mark.parametrize("name", NOT_PADDED)
def test_what_may_be_data_is_no_padding(name: str) -> None:
    assert "batches" not in seen(*NOT_PADDED[name])


def shapes_of(loss: torch.Tensor) -> Any:
    graph = UnusedGradients(RepeatedWeights())
    end = graph.watch()
    loss.backward()
    end()
    return graph.take_shapes()


WEIGHT = torch.rand(5, 3, 4, 4, requires_grad=True)
SMALL = torch.rand(5, 3, 1, 1, requires_grad=True)


@pytest.mark.parametrize(
    ("compute", "expected"),
    [
        (lambda pictures: functional.conv2d(pictures, SMALL).sum(), True),
        (lambda pictures: functional.conv2d(pictures, WEIGHT, stride=2, padding=1).sum(), True),
        (lambda pictures: functional.conv2d(pictures, WEIGHT, stride=4).flatten(2).transpose(1, 2).sum(), True),
        (lambda pictures: functional.conv2d(pictures[..., :23, :17], SMALL).sum(), False),
        (lambda pictures: (pictures.sum((2, 3)) @ SMALL.flatten(1).T).sum(), False),
    ],
)
def test_shapes_in_the_graph_show_whether_a_canvas_is_computed(compute: Any, expected: bool) -> None:
    found = seen(*PADDED["mask with a channel"], shapes=shapes_of(compute(pictures_of(MASKS[0]))))
    assert found["computed"] is expected
