"""Distances between surfaces: MONAI's metrics, on boxes whose distances are known."""

from __future__ import annotations

import math

import pytest
import torch

from flatout.segmentation.surfaces import MOST_VOXELS, lacking, surface_scores


def box(first: int, shape: tuple[int, int, int] = (24, 16, 16)) -> torch.Tensor:
    labels = torch.zeros(shape, dtype=torch.uint8)
    labels[first : first + 8, 4:12, 4:12] = 1
    return labels


@pytest.mark.slow
def test_a_box_that_was_moved_is_as_far_off_as_it_was_moved() -> None:
    pytest.importorskip("monai")
    near, same = (surface_scores(box(4 + moved), box(4), 2, 255, (1, 1, 1))[0] for moved in (1, 0))
    assert same.surface_dice == 1 and same.hd95 == 0
    assert near.surface_dice == 1 and near.hd95 == pytest.approx(1)
    far = surface_scores(box(10), box(4), 2, 255, (0.5, 1, 1))[0]
    assert far.surface_dice < 0.8 and far.hd95 == pytest.approx(3)  # six planes of half a unit
    ignored = box(4)
    ignored[12:] = 255  # nobody labelled these planes: what is predicted there does not count
    assert surface_scores(box(4) | box(14), ignored, 2, 255, (1, 1, 1))[0].surface_dice == 1
    absent, missed = surface_scores(box(4) * 2, box(4) * 0, 3, 255, (1, 1, 1))
    assert math.isnan(absent.surface_dice) and missed.surface_dice == 0 and math.isnan(missed.hd95)


def test_what_is_too_large_or_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flatout.segmentation.surfaces.PACKAGES", ("numpy",))
    assert lacking(MOST_VOXELS) is None
    assert "would not fit into memory" in str(lacking(MOST_VOXELS + 1))
    monkeypatch.setattr("flatout.segmentation.surfaces.PACKAGES", ("numpy", "no_such_package"))
    assert lacking(1) == "no_such_package not installed: pip install 'flatout[scores]'"
