"""Values as public training programs print them: accuracies in each scale, settings that are none, sizes, rounding."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.logs.postmortem import Postmortem, read_logs


def read(tmp_path: Path, text: str) -> Postmortem:
    (tmp_path / "train.log").write_text(text)
    return read_logs([tmp_path / "train.log"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("val acc 10.2%", {"val_acc1": 0.102}),
        ("val acc 55.1%", {"val_acc1": 0.551}),
        ("val acc 5%", {"val_acc1": 0.05}),
        ("val_acc 55.1%", {"val_acc1": 0.551}),
        ("accuracy 55.1%", {"acc1": 0.551}),
        ("train acc 12.5% val acc 15.5%", {"train_acc1": 0.125, "val_acc1": 0.155}),
        ("val acc 5: 55.1%", {"val_acc5": 0.551}),
        ("val acc5 55.1%", {"val_acc5": 0.551}),
        ("val acc top-5 55.1%", {"val_acc5": 0.551}),
        ("Acc@5 0.10", {"acc5": 0.001}),
        ("top10 0.9", {}),
        ("Test set: Average loss: 0.0500, Accuracy: 9832/10000 (98%)", {"loss": 0.05, "acc1": 0.9832}),
        ("Accuracy of the network on the 10000 test images: 55 %", {"val_acc1": 0.55}),
        ("accuracy 250", {}),
        ("acc1: 1.0\nacc1: 12.0", {"acc1": 0.12}),
        ("acc 0.1\nacc 0.99", {"acc1": 0.99}),
        ("acc 55%\nacc 0.99", {"acc1": 0.99}),
    ],
)
def test_accuracies_lie_between_0_and_1(text: str, expected: dict[str, float], tmp_path: Path) -> None:
    found = read(tmp_path, f"Epoch 1\n{text}\n").files[0].facts.metrics
    assert {name: series.last for name, series in found.items()} == pytest.approx(expected)


@pytest.mark.parametrize("later", ["acc1: 12.0", "Test:  * Acc@1 12.000"])
def test_what_was_taken_for_a_fraction_is_put_right_by_a_later_percentage(later: str, tmp_path: Path) -> None:
    series = read(tmp_path, f"loss 2 acc1: 1.0\nloss 2 acc1: 0.5\n{later}\n").files[0].facts.metrics["acc1"]
    assert [value for _, value in series.points] == pytest.approx([0.01, 0.005, 0.12])
    assert (series.first, series.least, series.most) == pytest.approx((0.01, 0.005, 0.12))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Epoch 0, batch 50, loss[loss=1.2, over 900 frames], batch size: 30", {"batch_size": 30}),
        ("Train time/batch: 9", {}),
        ("Accuracy of the network on the 10000 test images: 55 %", {}),
        (" 2: 800.1, 790.2 avg, 0.001 rate, 3.1 seconds, 128 images, 1.2 hours left", {}),
        ("8 workers, batch 64, 50000 images", {"workers": 8, "batch_size": 64, "train_samples": 50000}),
        ("  Total train batch size (w. parallel, distributed & accumulation) = 32", {"batch_size": 32}),
        (
            "  total train batch size (with parallel & distributed & accumulation) / \u7dcf\u30d0\u30c3\u30c1: 4",
            {"batch_size": 4},
        ),
        ("  Instantaneous batch size per device = 8", {}),
        ("machine: 64 GiB RAM", {"ram_bytes": 64 * 2**30}),
        ("machine: 64 GB RAM", {"ram_bytes": 64e9}),
    ],
)
def test_settings_are_what_the_line_says_and_no_more(text: str, expected: dict[str, float], tmp_path: Path) -> None:
    found = read(tmp_path, f"{text}\nEpoch 1 took 5 s\n").files[0].facts.settings
    assert {name: said[0].value for name, said in found.items()} == expected


@pytest.mark.parametrize(("loss", "worse"), [("2.303", False), ("2.30", False), ("2.304", True), ("2.5", True)])
def test_a_loss_that_equals_guessing_to_its_digits_is_not_worse(loss: str, worse: bool, tmp_path: Path) -> None:
    (claim,) = read(tmp_path, f"val acc 10.2% on 10 classes, val loss {loss}, 1000 validation images\n").claims
    assert claim.found is not None and ("worse than guessing" in claim.found) is worse
    assert "0.2 standard errors" in claim.found
