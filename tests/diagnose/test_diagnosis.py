"""A whole diagnosis: from a record to causes and remedies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import flatout.predict.rate_model as rate_model
from flatout.diagnosis import diagnose
from flatout.record import load_run
from tests.record.rich import rich_run


def test_a_diagnosis_fits_the_rate_model_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bootstrap takes most of a diagnosis' time."""
    fit, fitted = rate_model.fit, []

    def counted(run: Any) -> Any:
        fitted.append(run)
        return fit(run)

    holders = [module for name, module in list(sys.modules.items()) if name.startswith("flatout.")]
    for module in holders:
        if getattr(module, "fit", None) is fit:
            monkeypatch.setattr(module, "fit", counted)
    found = diagnose(load_run(rich_run(tmp_path)))
    assert found.causes and found.remedies
    assert len(fitted) == 1
