"""Numbers whose neighbours belong to another quantity, as public training programs print them."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.logs.metrics import named_metrics
from flatout.logs.postmortem import FileResult, read_logs
from flatout.logs.quantities import quantities


def result(tmp_path: Path, text: str) -> FileResult:
    (tmp_path / "train.log").write_text(text)
    return read_logs([tmp_path / "train.log"]).files[0]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Epoch 1/20 | Time 2m 30s", 150),
        ("took 1h 2m", 3720),
        ("1 hour, 2 minutes and 5 seconds", 3725),
        ("1h02m30s", 3750),
        ("1 day, 2:03:04", 93784),
        ("Time: 2:30", 150),
        ("[03/01 10:00:08] took 3 s", 3),
        ("I0301 10:00:08.123456 12 a.py:55] 3 s", 3),
        ("finished at 10:05:22", None),
        ("time -10 s", None),
    ],
)
def test_durations_are_whole_and_clock_times_none(text: str, seconds: float | None) -> None:
    assert [one.low for one in quantities(text) if one.what == "s"] == ([] if seconds is None else [seconds])


@pytest.mark.parametrize(
    "rate", ["lr=1e-4 samples/sec=128.0", "lr=3e-5 images/s: 128", "lr 2e-3 128.0 img/s", "samples_per_second=128"]
)
def test_a_learning_rate_is_no_throughput(rate: str, tmp_path: Path) -> None:
    lines = [f"2026-03-01 10:00:{second:02d} step={10 * second} loss=0.5 {rate}\n" for second in range(0, 50, 5)]
    assert result(tmp_path, "".join(lines)).epochs[0].rate_sps == 128


def test_the_plan_is_what_is_to_do_and_nothing_else(tmp_path: Path) -> None:
    text = "Total for 10 epochs: 30 minutes\nSaving checkpoint at 3 epochs\nno improvement in 4 epochs\n"
    assert [one.value for one in result(tmp_path, text).facts.settings["epochs"]] == [10]
    assert "train_samples" not in result(tmp_path, text + "Image sizes 640 train, 640 val\n").facts.settings


@pytest.mark.parametrize(
    "head", ["Epoch [1/5], Step [{}/300]", "Epoch 1 of 5 | step {}/300", "[Epoch 1/5][Iter: {}/300]"]
)
def test_the_end_counts_the_epochs_to_come(head: str, tmp_path: Path) -> None:
    lines = [f"2026-03-01 10:{n // 120:02d}:{n // 2 % 60:02d} {head.format(n)} loss: 0.5\n" for n in range(0, 300, 10)]
    projection = result(tmp_path, "".join(lines)).projection
    assert projection is not None and projection.remaining_s == pytest.approx(605)
    assert result(tmp_path, "".join(lines).replace("1/5", "1").replace("1 of 5", "1")).projection is None


def test_advice_on_errors_is_no_error(tmp_path: Path) -> None:
    advice = "Epoch 1 took 10 s\nDon't forget: CUDA out of memory errors can be avoided with smaller batch.\n"
    assert result(tmp_path, advice).facts.troubles == []
    text = "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB\n"
    assert [one.what for one in result(tmp_path, text).facts.troubles] == ["oom"]


def test_accuracies_behind_an_at_sign_are_in_percent_and_an_infinite_loss_is_no_nan(tmp_path: Path) -> None:
    found = result(
        tmp_path,
        "Epoch: [0][ 10/20]\tTime  0.4 ( 0.4)\tLoss 6.9e+00 (6.9e+00)\tAcc@1   0.10 (  0.10)\tAcc@5   0.50 (  0.50)\n"
        "Epoch: [1][ 10/20]\tTime  0.4 ( 0.4)\tLoss inf (inf)\tAcc@1   1.00 (  1.00)\tAcc@5   5.00 (  5.00)\n",
    )
    assert found.facts.metrics["acc1"].last == pytest.approx(0.01) and found.facts.metrics[
        "acc5"
    ].least == pytest.approx(0.005)
    assert [one.what for one in found.facts.troubles] == ["inf"]


@pytest.mark.parametrize(
    ("text", "metrics"),
    [
        ("val acc 10.2%", {"val_acc1": 0.102}),
        ("train acc 12.5% val acc 55.1%", {"train_acc1": 0.125, "val_acc1": 0.551}),
        ("accuracy 5%", {"acc1": 0.05}),
        ("acc 5: 90.5%", {"acc5": 0.905}),
        ("loss: 0.05, Accuracy: 9832/10000 (98%)", {"loss": 0.05, "acc1": 0.9832}),
    ],
)
def test_the_first_digit_of_an_accuracy_is_no_number_of_guesses(text: str, metrics: dict[str, float]) -> None:
    assert named_metrics(text) == pytest.approx(metrics)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("Epoch 0, batch 50, loss[1.2], batch size: 30", "batch_size", 30),
        ("Train time/batch: 9", "batch_size", None),
        ("training with batch 256 and 4 workers", "batch_size", 256),
        ("Accuracy of the network on the 10000 test images: 55 %", "train_samples", None),
        ("9: 1.5, 1.2 avg loss, 0.001 rate, 3.2 seconds, 128 images", "train_samples", None),
        ("found 12,000 images of 10 classes", "train_samples", 12_000),
    ],
)
def test_a_counter_and_an_evaluation_are_no_settings(text: str, name: str, value: float | None, tmp_path: Path) -> None:
    said = result(tmp_path, text + "\n").facts.settings.get(name, [])
    assert [one.value for one in said] == ([] if value is None else [value])
