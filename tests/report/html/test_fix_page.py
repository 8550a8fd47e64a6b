"""The HTML page of a fix."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

from flatout.cli import main
from flatout.compare.ratio import Ratio
from flatout.report.html.writing import write_fix
from flatout.results import Gain, RemedyBundle
from flatout.trials.result import DROPPED, KEPT, FixResult, Proof, Trial
from tests.report.html.browser import opened
from tests.report.html.test_html_page import HOSTILE, data_in

GAIN = Gain(2.0, 1.5, 3.0)


def fixed() -> FixResult:
    """A fix that kept one remedy of three."""
    ratio = Ratio(2.2, 2.1, 2.3, 2)
    tried = (
        Trial("more_workers", f"use 4 workers {HOSTILE}", "identical", {"num_workers": 4}, GAIN, KEPT, "2.2x", ratio),
        Trial(
            "pin", "pin memory", "identical", {"pin_memory": True}, GAIN, DROPPED, "no gain", Ratio(1.0, 0.9, 1.1, 2)
        ),
        Trial("amp", "mixed precision", "numerics", {"autocast": "bf16"}, GAIN, "failed", "with it, the run ended"),
    )
    return FixResult(
        command=("python", "train.py"),
        before=100.0,
        unit="samples/s",
        verdict="The training waits 60% of the time for batches.",
        tried=tried,
        untried=(("compile", "changes rounding"),),
        proof=Proof(100.0, 220.0, ratio, "samples/s", "the same 80 losses", True),
        ended="",
        isolation="Writes went to a private view.",
        folder=".flatout/fixes/1",
        seconds=300.0,
        plans=(RemedyBundle("conservative", {"num_workers": 4}, ("use 4 workers",), GAIN, None, "low"),),
    )


def test_the_page_holds_every_trial_with_what_was_predicted_and_measured(tmp_path: Path) -> None:
    path = tmp_path / "fix.html"
    assert "fix.html" in write_fix(fixed(), (None, {}), path, force=False)
    tried = data_in(path)["result"]["tried"]
    assert [one["outcome"] for one in tried] == [KEPT, DROPPED, "failed"]
    assert tried[0]["ratio"]["factor"] == 2.2 and tried[0]["predicted"]["high"] == 3.0 and tried[2]["ratio"] is None


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1100])
def test_a_browser_shows_the_proof_and_each_outcome(tmp_path: Path, width: int) -> None:
    path = tmp_path / "fix.html"
    write_fix(fixed(), (None, {}), path, force=False)
    with opened(path, viewport={"width": width, "height": 800}) as page:
        assert page.locator("h1").inner_text().startswith("Proved: 2.2x as fast")
        outcomes = [each.get_attribute("data-outcome") for each in page.locator("[data-outcome]").all()]
        assert outcomes == [KEPT, DROPPED, "failed"]
        assert "2.20x (2.10x–2.30x)" in page.locator("main").inner_text()
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_page_that_could_not_be_written_is_refused_before_the_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fix.html").write_text("mine")
    with patch("flatout.trials.fixing.Fixing.run", side_effect=AssertionError("a run was made")):
        assert main(["fix", "--html", "--", "python", "train.py"]) == 2
        assert "fix.html exists" in capsys.readouterr().err
        assert main(["fix", "--html", "-o", "nowhere/x.html", "--", "python", "train.py"]) == 2
        assert main(["fix", "-o", "x.html", "--", "python", "train.py"]) == 2
    assert (tmp_path / "fix.html").read_text() == "mine"
