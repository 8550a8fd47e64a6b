"""The pages of a training by a recipe and of a staging."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from flatout.cli import main
from flatout.stage.pace import MOST_POINTS, Pace, Point
from tests.report.html.browser import opened
from tests.report.html.test_html_page import data_in

EPOCHS, STEPS = 3, 700  # of an epoch
PLAN = {"at_s": 40.0, "folds_done": 0, "epochs_done": 1, "epoch_s": 34.0, "folds": 1, "epochs": 2, "needed_s": 36.0,
        "left_s": 60.0}  # fmt: skip


def table(path: Path, head: str, rows: Sequence[Sequence[object]]) -> None:
    with path.open("w") as file:
        csv.writer(file).writerows([head.split(","), *rows])


def trained(folder: Path, ended: bool = True) -> Path:
    """Three epochs of a training; the second one was not validated."""
    folder.mkdir(parents=True)
    rows = [
        (epoch, 0.01, 2.0 - epoch, "" if epoch == 1 else 0.5 + 0.1 * epoch, 400, 30, 3 * epoch, 4)
        for epoch in range(EPOCHS)
    ]
    table(folder / "metrics.csv", "epoch,lr,val/loss,val/acc1,samples_per_s,train_s,wait_s,validation_s", rows)
    losses = [(step, step // STEPS, 9.0 if step == 1234 else 1.0, 0.01) for step in range(EPOCHS * STEPS)]
    table(folder / "steps.csv", "step,epoch,loss,lr", losses)
    if ended:
        summary = {"best_epoch": 2, "stopped": "the </script> deadline", "notes": ["a note"]}
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def test_the_page_of_a_training_keeps_the_extremes_of_its_losses(tmp_path: Path) -> None:
    folder, out = trained(tmp_path / "run"), tmp_path / "page.html"
    assert main(["report", str(folder), "--html", "-o", str(out)]) == 0
    found = data_in(out)
    assert found["verdict"] == "3 epochs in 1 min 42 s; 10% of the training time was waiting for data."
    charts = {chart["title"]: chart["lines"] for chart in found["charts"]}
    loss, validation = charts["Loss"]
    assert max(loss["high"]) == 9.0 and len(loss["x"]) <= 1_000 and found["notes"]
    assert validation["x"] == [699.0, 1399.0, 2099.0] and validation["y"] == [2.0, 1.0, 0.0]
    assert charts["Scores"][0]["y"] == [0.5, 0.7] and charts["Learning rate"]
    assert found["fits"][0]["epochs"][1]["wait_s"] == 3 and found["deadline"] is None
    assert "</script> deadline" not in out.read_text()


def test_folds_and_plans_have_their_place_and_a_training_may_go_on(tmp_path: Path) -> None:
    folder, out = tmp_path / "run", tmp_path / "page.html"
    for fold in (0, 1):
        trained(folder / f"fold-{fold}", ended=not fold)
    limit = {"limit_s": 120.0, "used_s": 100.0, "epochs": 3, "folds": 2, "plans": [PLAN, {"at_s": "damaged"}]}
    (folder / "deadline.json").write_text(json.dumps(limit))
    assert main(["report", str(folder), "--html", "-o", str(out)]) == 0
    found = data_in(out)
    assert [fit["name"] for fit in found["fits"]] == ["fold-0", "fold-1"]
    assert found["verdict"].endswith("The training has not ended by itself.")
    assert found["deadline"]["plans"] == [PLAN]


def test_a_damaged_table_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = trained(tmp_path / "run")
    (folder / "steps.csv").write_text("step,loss\n1,much\n")
    assert main(["report", str(folder), "--html", "-o", str(tmp_path / "x.html")]) == 2
    assert "steps.csv: cannot be read" in capsys.readouterr().err
    assert not (tmp_path / "x.html").exists()


def test_the_pace_of_a_staging_is_kept_in_bounded_memory() -> None:
    pace = Pace()
    for moment in range(10_000):
        if pace.due(moment / 10):
            pace.add(Point(moment / 10, moment, 10 * moment, 4, 0, 0))
    assert len(pace.points) < MOST_POINTS and pace.points[0].at_s == 0.0
    gaps = [after.at_s - before.at_s for before, after in zip(pace.points, pace.points[1:], strict=False)]
    assert min(gaps[:-1]) >= pace.every_s - 1e-6 and pace.every_s < 4


def test_a_staging_has_a_page_with_its_rates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("botocore")
    monkeypatch.chdir(tmp_path)
    for number in range(20):
        (tmp_path / "source" / f"{number}.bin").parent.mkdir(exist_ok=True)
        (tmp_path / "source" / f"{number}.bin").write_bytes(bytes(1000))
    assert main(["stage", "source", "copy", "--html", "--dry-run"]) == 2
    assert "does not go with --dry-run" in capsys.readouterr().err
    assert main(["stage", "source", "copy", "--html", "--quiet"]) == 0
    found = data_in(tmp_path / "stage.html")
    assert found["verdict"].startswith("20 files copied, 19.5 KiB") and found["result"]["copied"] == 20
    assert {"MiB/s", "files/s"} <= {chart["title"] for chart in found["charts"]}
    assert main(["stage", "source", "copy", "--html"]) == 2
    assert "stage.html exists" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1100, "light")])
def test_a_browser_shows_the_training_and_reads_values_by_keyboard(tmp_path: Path, width: int, scheme: str) -> None:
    folder, out = trained(tmp_path / "run"), tmp_path / "page.html"
    limit = {"limit_s": 120.0, "used_s": 100.0, "epochs": 3, "folds": 1, "plans": [PLAN]}
    (folder / "deadline.json").write_text(json.dumps(limit))
    assert main(["report", str(folder), "--html", "-o", str(out)]) == 0
    with opened(out, viewport={"width": width, "height": 800}, color_scheme=scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("h1").inner_text().startswith("3 epochs in 1 min 42 s")
        assert "Plan to the deadline of 2 min 0 s" in page.locator("main").inner_text()
        assert "the </script> deadline" in page.locator("main").inner_text()
        page.locator("canvas").first.focus()
        page.keyboard.press("Enter")
        assert page.locator("figcaption").first.inner_text().startswith("loss of a step 1 (1 to 1)")
