"""Prediction by a sliding window: exact, in bounded memory, and the same from any plane on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from flatout.segmentation.sliding_window import slide, starts


class _Array:
    """A volume in memory that notes the largest box read."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.shape = values, values.shape

    def read(self, z: int, y: int, x: int, dz: int, dy: int, dx: int) -> np.ndarray:
        box = self.values[z : z + dz, y : y + dy, x : x + dx]
        assert box.shape == (dz, dy, dx)
        return box


def _identity(voxels: torch.Tensor) -> torch.Tensor:
    share = voxels.float() / 255
    return torch.stack([1 - share, share], 1)


@pytest.mark.parametrize("shape", [(40, 37, 50), (5, 64, 20), (16, 16, 16), (7, 3, 9)])
def test_a_network_that_answers_with_its_input_returns_the_volume(shape: tuple[int, int, int]) -> None:
    values = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    made = list(slide(_Array(values), (16, 16, 16), _identity, 2, batch=3))
    planes = torch.cat([part.probabilities for part in made], 1)
    assert np.abs(planes[1].numpy() * 255 - values).max() < 1e-3
    assert torch.allclose(planes.sum(0), torch.ones(shape), atol=1e-5)
    assert [part.first for part in made] == list(np.cumsum([0, *(p.probabilities.shape[1] for p in made)])[:-1])
    assert max(part.probabilities.shape[1] for part in made) <= 16


def test_a_prediction_that_goes_on_has_the_same_bits() -> None:
    values = np.random.default_rng(1).integers(0, 256, (50, 20, 20), dtype=np.uint8)

    def uneven(voxels: torch.Tensor) -> torch.Tensor:
        # What a patch says about a voxel depends on the voxel's place in it, as at a network's borders.
        return _identity(voxels) * torch.linspace(0.5, 1.5, 16)[:, None, None] ** 2

    whole = torch.cat([part.probabilities for part in slide(_Array(values), (16, 16, 16), uneven, 2)], 1)
    for first in (8, 17, 40, 49):
        rest = list(slide(_Array(values), (16, 16, 16), uneven, 2, first=first))
        assert rest[0].first == first
        assert torch.equal(torch.cat([part.probabilities for part in rest], 1), whole[:, first:])


def test_patches_cover_an_axis_evenly_and_overlap_enough() -> None:
    assert starts(100, 40, 0.5) == [0, 20, 40, 60]
    assert starts(101, 40, 0.5) == [0, 15, 30, 46, 61]
    assert starts(30, 40, 0.5) == [0]
    assert starts(80, 40, 0.0) == [0, 40]
