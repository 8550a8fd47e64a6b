"""The demo's comparison: it states what two reports measured, and scores the prediction."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def load() -> ModuleType:
    specification = importlib.util.spec_from_file_location("examples_comparison", EXAMPLES / "comparison.py")
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module  # dataclasses look their own module up
    specification.loader.exec_module(module)
    return module


comparison = load()


def report(rate_sps: float, *, cause: str = "cpu_transform", wait: float | None = 0.8, gain: Any = None) -> Any:
    accounts = [] if wait is None else [{"id": "batch_wait", "share": wait}]
    remedy = {"cause": cause, "title": "crop first", "gain": gain}
    return {
        "verdict": "The training waits.",
        "ledger": {"steps": {"rate_sps": rate_sps, "median_s": 32 / rate_sps}, "accounts": accounts},
        "causes": [{"id": cause, "title": "transforms use up the cores"}],
        "remedies": [remedy] if gain else [],
    }


def lines(before: Any, after: Any, **options: Any) -> str:
    readings = (comparison.Reading.of(before), comparison.Reading.of(after))
    return "\n".join(comparison.compare(*readings, "cpu_transform", **options))


def test_the_gain_is_the_ratio_of_measured_rates() -> None:
    text = lines(report(200.0), report(500.0, cause="cpu_decode", wait=0.25))
    assert "2.50x, measured" in text
    assert "80%         25%" in text


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        (400.0, "2.00x, inside the interval, +0% from the predicted value"),
        (600.0, "3.00x, above the interval, 50% more than predicted"),
        (240.0, "1.20x, below the interval, 40% less than predicted"),
    ],
)
def test_the_prediction_is_scored_against_the_measured_gain(measured: float, said: str) -> None:
    text = lines(report(200.0, gain={"predicted": 2.0, "low": 1.5, "high": 2.5}), report(measured))
    assert "Predicted: 2.00x (1.50 to 2.50)" in text
    assert said in text


def test_no_prediction_is_not_scored() -> None:
    text = lines(report(200.0), report(400.0))
    assert "nothing to score" in text
    assert "interval" not in text


def test_another_first_cause_than_the_corrected_one_is_said() -> None:
    text = lines(report(200.0, cause="storage_latency"), report(400.0))
    assert "puts storage_latency first" in text


def test_a_wait_that_the_report_lacks_is_not_shown_as_zero() -> None:
    text = lines(report(200.0, wait=None), report(400.0))
    assert "not measured" in text
    assert " 0%" not in text


def test_the_guess_is_compared_with_the_script_as_it_was() -> None:
    guess = comparison.Reading.of(report(190.0))
    assert "The guess: 0.95x, measured" in lines(report(200.0), report(400.0), guess=guess)


def test_a_run_without_steps_is_refused_with_its_verdict() -> None:
    empty: dict[str, Any] = {"verdict": "No training step was seen.", "ledger": None, "causes": [], "remedies": []}
    with pytest.raises(ValueError, match=r"No training step was seen\."):
        comparison.Reading.of(empty)


def test_lines_fit_eighty_columns() -> None:
    text = lines(report(20000.0, gain={"predicted": 2.0, "low": 1.5, "high": 2.5}), report(99999.0))
    assert max(len(line) for line in text.splitlines()) <= 80
