"""Reference operators: of which model what is measured."""

from __future__ import annotations

import pytest

from flatout.probe import reference
from flatout.probe.recorder import REC


@pytest.mark.parametrize("dims", [None, 2, 3])
def test_a_convolution_is_timed_for_models_of_64_bit_floats(monkeypatch: pytest.MonkeyPatch, dims: int | None) -> None:
    monkeypatch.setattr(REC, "process", {"param_dtype": "float64", "convolutions": dims})
    found = reference.measure()
    assert found.keys() == {"operator_ns", "float64_factor", "float64_convolution_factor"}
    assert found["float64_convolution_factor"] > 0


def test_for_others_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REC, "process", {"param_dtype": "float32", "convolutions": 2})
    assert reference.measure().keys() == {"operator_ns", "float64_factor"}
