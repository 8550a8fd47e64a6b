"""Reference operators: of which model what is measured."""

from __future__ import annotations

import pytest
import torch

from flatout.probe import reference
from flatout.probe.recorder import REC

ALWAYS = {"operator_ns", "float64_factor", "bernoulli_ns", "quick_mask_ns", "bce_ns", "quick_bce_ns"}


@pytest.mark.parametrize("dims", [None, 2, 3])
def test_a_convolution_is_timed_for_models_of_64_bit_floats(monkeypatch: pytest.MonkeyPatch, dims: int | None) -> None:
    monkeypatch.setattr(REC, "process", {"param_dtype": "float64", "convolutions": dims})
    found = reference.measure()
    assert found.keys() == {*ALWAYS, "float64_convolution_factor"}
    assert found["float64_convolution_factor"] > 0


def test_for_others_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REC, "process", {"param_dtype": "float32", "convolutions": 2})
    assert reference.measure().keys() == ALWAYS


def test_slow_kernels_are_not_timed_beside_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REC, "process", {})
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert reference.measure().keys() == {"operator_ns", "float64_factor"}
    monkeypatch.undo()
    state = torch.get_rng_state()
    reference.measure()
    assert bool((state == torch.get_rng_state()).all())
