"""Logs that are cut, oddly encoded, or whose clock was set; and validations between the epochs."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from flatout.errors import UsageError
from flatout.logs.claims import Claim
from flatout.logs.postmortem import FileResult, read_logs
from flatout.report.logs import verdict

TRAINING = "Training: 100%|##########| 500/500 [01:40<00:00,  5.00it/s]\n"
VALIDATION = "Validation: 100%|##########| 50/50 [00:05<00:00, 10.00it/s]\n"


def result(tmp_path: Path, text: str | bytes, name: str = "train.log") -> FileResult:
    (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return read_logs([tmp_path / name]).files[0]


def claims(tmp_path: Path, text: str) -> list[Claim]:
    (tmp_path / "train.log").write_text(text)
    return [one for one in read_logs([tmp_path / "train.log"]).claims if one.id == "stated_speed_up"]


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-16"])
def test_utf16_is_read_with_and_without_its_byte_order_mark(codec: str, tmp_path: Path) -> None:
    text = "Epoch 1/5 - train loss 0.5 - time: 30.0s\nEpoch 2/5 - train loss 0.4 - time: 20.0s\n"
    assert [one.time.seconds for one in result(tmp_path, text.encode(codec)).epochs] == [30, 20]


def test_what_was_left_out_is_noted(tmp_path: Path) -> None:
    found = result(tmp_path, "Epoch 1/3 took 5 s\n" + "x1 loss " * 20_000 + "\nEpoch 2/3 took 5 s\n")
    assert found.facts.notes == ["line 2 is longer than 64.0 KiB: the rest of it was not read"]
    assert len(found.epochs) == 2
    rows = '[{"stream_name":"stdout","time":1.0,"data":"Epoch 1/3 took 5 s"}\n,{"stream_name":"stdout","ti'
    notes = result(tmp_path, rows, "kaggle.json").facts.notes
    assert "line 2 is no whole JSON object: it was left out" in notes
    assert "its list has no end: it was cut off, or is being written" in notes


@pytest.mark.parametrize("odd", ["2026-03-01 09:00:30", "1970-01-01 00:00:05"])
def test_a_clock_that_was_set_does_not_count(odd: str, tmp_path: Path) -> None:
    """The lines are 6 s a step apart; the clock goes back in their middle, or starts in 1970."""
    times = [f"2026-03-01 10:{minute:02d}:00" for minute in range(9)]
    times.insert(0 if odd < "2000" else 4, odd)
    found = result(tmp_path, "".join(f"{time} step {n}0/1000 loss 0.5\n" for n, time in enumerate(times)))
    assert found.projection is not None and found.projection.remaining_s == pytest.approx(6 * 910)
    assert any("clock was set" in note for note in found.facts.notes)


def test_validations_between_the_epochs_count_and_those_within_a_bar_do_not_twice(tmp_path: Path) -> None:
    plan = "Starting training for 5 epochs...\n"
    apart = result(tmp_path, plan + (TRAINING + VALIDATION) * 2)
    assert [one.time.seconds for one in apart.epochs] == [100, 100]
    assert apart.projection is not None and apart.projection.remaining_s == pytest.approx(3 * 105)
    begun = "Training:  10%|#         | 50/500 [00:10<01:30,  5.00it/s]\n"
    within = result(tmp_path, plan + (begun + VALIDATION + TRAINING) * 2)
    assert within.projection is not None and within.projection.remaining_s == pytest.approx(3 * 100)


def test_a_table_of_epochs_is_read_by_its_head(tmp_path: Path) -> None:
    table = "epoch  train_loss  valid_loss  accuracy  time\n0  0.90  0.80  0.70  01:40\n1  0.89  None  0.71  00:50\n"
    found = result(tmp_path, table + "2  0.88  0.78  0.72  00:50\n\n7 of 9\n")
    assert [(one.time.epoch, one.time.seconds) for one in found.epochs] == [(0, 100), (2, 50)]
    assert found.facts.metrics["val_loss"].last == 0.78 and found.facts.metrics["val_acc1"].last == 0.72


def test_a_factor_is_held_against_the_two_numbers_beside_it(tmp_path: Path) -> None:
    (off,) = claims(tmp_path, "With 8 workers the epoch went from 78s to 39s, a 3x speedup.\n")
    assert off.verdict == "off" and off.off_by == pytest.approx(1.5)
    (right,) = claims(tmp_path, "Throughput rose from 100 to 250 images/s (2.5x).\n")
    assert right.verdict == "consistent"
    assert claims(tmp_path, "Steps vary from 1.2 s to 1.9 s, and the cache gives 3x.\n") == []
    assert claims(tmp_path, "It went from 10 s to 12 s. Compiling gives 2x elsewhere.\n") == []


LINES = "".join(f"Epoch {n}/100: 10 steps in {20 + n % 3}.{n}s, loss {3 - n / 50:.3f}\n" for n in range(1, 61))


@pytest.mark.parametrize("how", ["cut", "damaged"])
def test_a_packed_log_is_read_as_far_as_it_goes(how: str, tmp_path: Path) -> None:
    packed = gzip.compress(LINES.encode(), 1)
    middle = len(packed) // 2
    (tmp_path / "a.log.gz").write_bytes(packed[:middle] + (b"" if how == "cut" else b"\xff" * 40 + packed[middle:]))
    (file,) = read_logs([tmp_path / "a.log.gz"]).files
    assert 10 <= len(file.epochs) < 60 and file.epochs[-1].time.epoch == len(file.epochs)
    assert re.search("cut off|damaged", file.facts.notes[-1]) and "what came before was read" in file.facts.notes[-1]


def test_a_packed_log_of_several_members_is_read_to_its_end(tmp_path: Path) -> None:
    half = LINES.index("Epoch 31/")
    members = gzip.compress(LINES[:half].encode()) + gzip.compress(LINES[half:].encode()) + b"\0" * 512
    (tmp_path / "a.log.gz").write_bytes(members)
    (file,) = read_logs([tmp_path / "a.log.gz"]).files
    assert len(file.epochs) == 60 and not file.facts.notes


def test_a_packed_log_without_a_readable_line_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(LINES.encode())[:12])
    with pytest.raises(UsageError, match=r"a\.log\.gz: it is cut off, and what comes before that is no log"):
        read_logs([tmp_path / "a.log.gz"])


def test_findings_of_many_files_are_one_sentence(tmp_path: Path) -> None:
    for name in "abcdefg":
        (tmp_path / f"{name}.log").write_text("step 1 loss 2.0\nstep 2 loss nan\n")
    said = verdict(read_logs([tmp_path]))
    assert said.startswith("the loss became NaN in 7 of 7 files: a.log, b.log, c.log, ... ")
