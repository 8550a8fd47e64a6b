"""Predictions are scored by the trials that tested them."""

import json
from pathlib import Path

import pytest

from flatout.cli import main
from flatout.compare.ratio import Ratio
from flatout.results import Gain
from flatout.trials.calibration import read_scored, score
from flatout.trials.journal import begin
from flatout.trials.result import DROPPED, KEPT, Trial


@pytest.fixture
def fixes(tmp_path: Path) -> Path:
    journal = begin(tmp_path / "fixes", ["python", "train.py"])
    for remedy, gain, ratio in (
        ("num_workers", Gain(2.0, 1.8, 2.2), Ratio(2.0, 1.9, 2.1, 2)),
        ("num_workers", Gain(3.0, 2.7, 3.3), Ratio(2.0, 1.9, 2.1, 2)),
        ("persistent_workers", Gain(1.1, 1.0, 1.3), Ratio(1.2, 1.1, 1.3, 2)),
        ("prefetch_factor", Gain(1.1, 1.0, 1.2), Ratio(1.1, 0.3, 3.1, 2)),
        ("pin_memory", Gain(1.1, 1.0, 1.2), None),
    ):
        trial = Trial(
            remedy,
            f"do {remedy}" + " and more" * 4 * (remedy == "persistent_workers"),
            "identical",
            {},
            gain,
            KEPT if ratio else DROPPED,
            "",
            ratio,
        )
        journal.write("trial", trial=trial.to_dict())
    return tmp_path / "fixes"


def test_errors_coverage_and_bias(fixes: Path) -> None:
    found = score(read_scored(fixes))
    assert found is not None
    assert (found.count, round(found.coverage, 2)) == (3, 0.67)
    assert found.median_error == pytest.approx(abs(1.1 / 1.2 - 1))
    assert found.bias == pytest.approx((1.0 * 1.5 * 1.1 / 1.2) ** (1 / 3))


def test_the_command_shows_them(fixes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibration", "--fixes-dir", str(fixes)]) == 0
    text = capsys.readouterr().out
    assert "num_workers" in text and "outside" in text and "undecided" in text and "Left out: 1 whose" in text
    assert max(map(len, text.splitlines())) <= 80
    long = next(line for line in text.splitlines() if line.endswith("..."))
    assert "  inside     do persistent_workers" in long  # a title that is too long says so, and hides no mark
    assert main(["calibration", "--fixes-dir", str(fixes), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["remedies"]["num_workers"]["count"] == 2


def test_without_trials_it_says_where_they_come_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibration", "--fixes-dir", str(tmp_path)]) == 2
    assert "`flatout fix` makes some" in capsys.readouterr().err
