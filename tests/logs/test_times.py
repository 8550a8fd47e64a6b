"""Times as logs write them: clocks of lines, of bars and of other files, and what none of them covers."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.logs.postmortem import FileResult, read_logs
from flatout.report.logs import lines


def result(tmp_path: Path, text: str) -> FileResult:
    (tmp_path / "train.log").write_text(text)
    return read_logs([tmp_path / "train.log"]).files[0]


@pytest.mark.parametrize(
    ("line", "steps", "total", "left_s"),
    [
        ("2026-11-20 10:0{}:00 step {}/2000 | loss 1.2", (500, 1000, 1500), 2000, 60),
        ("2026-11-20 10:0{}:00 step {}/10000 | loss 1.2", (1000, 2000), 10000, 480),
        ("[2026-11-20 10:0{}:00,000 INFO] Step {}/ 1000; loss: 2.0", (50, 100, 150, 200, 250, 300), 1000, 840),
        ("2026-11-20 10:0{}:00 Epoch [1/3], Step [{}/300] loss 1.0", (100, 200), 300, 60 + 2 * 180),
        ("2026-11-20 10:0{}:00 Epoch [1/3], Step [{}/300] loss 1.0", (100, 200, 300), 300, 2 * 180),
    ],
)
def test_steps_before_the_first_line_are_done(
    line: str, steps: tuple[int, ...], total: int, left_s: float, tmp_path: Path
) -> None:
    found = result(tmp_path, "".join(line.format(minute, step) + "\n" for minute, step in enumerate(steps)))
    (epoch,) = found.epochs
    assert (epoch.time.begin, epoch.time.done, epoch.time.total) == (steps[0], steps[-1], total)
    assert epoch.time.seconds == pytest.approx(60 * (len(steps) - 1))
    assert found.projection is not None and found.projection.remaining_s == pytest.approx(left_s)


EPOCHS = "2026-11-20 10:03:20 Epoch 1/5 done: loss 1.2 | 100 steps in 200.0s\n" + "".join(
    f"2026-11-20 10:{minute} Epoch {epoch}/5 done: loss 1.2 | 100 steps in 100.0s\n"
    for epoch, minute in ((2, "05:00"), (3, "06:40"))
)


@pytest.mark.parametrize(
    ("day", "hour", "mean", "why"),
    [
        ("20", 10, 0.5, ""),
        ("20", 17, None, "train.log and gpu.csv write times without a zone"),
        ("22", 10, None, "47 h 53 min lie between them"),
    ],
)
def test_gpu_samples_are_joined_from_the_begin_of_the_first_epoch(
    day: str, hour: int, mean: float | None, why: str, tmp_path: Path
) -> None:
    rows = ["timestamp, index, name, utilization.gpu [%], memory.used [MiB]"]
    for second in range(2, 402, 5):
        clock = f"{hour}:{second // 60:02d}:{second % 60:02d}.000"
        rows.append(f"2026/11/{day} {clock}, 0, NVIDIA A10G, {80 if second < 200 else 20} %, 100 MiB")
    (tmp_path / "gpu.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "train.log").write_text(EPOCHS)
    (joined,) = read_logs([tmp_path / "train.log", tmp_path / "gpu.csv"]).joined
    assert joined.mean == (mean and pytest.approx(mean)) and joined.seconds == (mean and 400)
    assert joined.samples == (80 if mean else 0) and why in joined.why and bool(why) is bool(joined.why)


@pytest.mark.parametrize(
    ("bar", "seconds", "its", "note"),
    [
        ("Epoch {}: : {:3d}%|#| {}/100 [00:{:02d}<00:09, v_num=0, reduced_train_loss=2.300]", 50, 2, ""),
        ("Epoch {}: : {:3d}%|#| {}/100 [00:{:02d}<00:09, 2.00it/s, v_num=0]", 50, 2, ""),
        ("Epoch {}: {:3d}%|#| {}/100 [00:{:02d}<00:00, 51.12it/s, loss=2.0]", 1, 51.12, "count over printed rate"),
        ("Epoch {}: {:3d}%|#| {}/100 [00:{:02d}<00:00, 151.00it/s]", 0, 151, "count over printed rate"),
        ("Epoch {}: {:3d}%|#| {}/100 [00:{:02d}<00:00, 5.00it/s]", 2, 50, "2 bars below 20 s may have taken up to 1 s"),
    ],
)
def test_bars_without_a_rate_and_those_of_a_second(
    bar: str, seconds: int, its: float, note: str, tmp_path: Path
) -> None:
    states = [bar.format(epoch, n, n, seconds * n // 100) + "\n" for epoch in (0, 1) for n in (10, 90, 100)]
    found = result(tmp_path, "".join(states))
    assert [(one.time.epoch, one.time.steps) for one in found.epochs] == [(0, 100), (1, 100)]
    assert [one.time.seconds for one in found.epochs] == [pytest.approx(100 / its)] * 2
    assert any(note in one for one in found.facts.notes) if note else not found.facts.notes


@pytest.mark.parametrize(
    ("rate", "verdict", "found"),
    [
        (" at 50 MB/s", "off", "100 MB/s"),
        (" (500 MB/s)", "off", "100 MB/s"),
        (" at 98 MB/s", "consistent", "10 files/s, 100 MB/s"),
        (", on a line of 500 MB/s", "consistent", "10 files/s, 100 MB/s"),
        ("", "consistent", "10 files/s, 100 MB/s"),
    ],
)
def test_the_rate_of_a_copy_is_held_against_its_size_and_time(
    rate: str, verdict: str, found: str, tmp_path: Path
) -> None:
    (tmp_path / "train.log").write_text(f"Copied 1000 files (10 GB) in 100 s{rate}.\n")
    (claim,) = read_logs([tmp_path / "train.log"]).claims
    assert (claim.id, claim.verdict) == ("copy_rate", verdict) and found in claim.found


def test_names_of_files_stay_as_they_are_and_large_numbers_have_no_exponent(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(EPOCHS.replace("100 steps", "400000 steps"))
    (tmp_path / "other.log").write_text(EPOCHS)
    text = "\n".join(lines(read_logs([tmp_path / "train.log", tmp_path / "other.log"])))
    assert text.startswith("train.log: the first epoch took 2.0x") and " 4,000 " in text and "e+" not in text
    assert lines(read_logs([tmp_path / "other.log"]))[0].startswith("The first epoch")


@pytest.mark.parametrize(
    ("line", "samples_s", "waiting"),
    [
        (
            "Epoch: [{}/2]  [ {}/100]  eta: 0:00:40  img/s: 64.0 (64.0)  loss: 2.3 (2.4)  time: 0.5000  data: 0.1000",
            64,
            0.2,
        ),
        (
            "Train: [{}/2][{}/100]\teta 0:00:40 lr 0.1\ttime 0.4 (0.5000)\tdata time 0.1 (0.2000)\tloss 6.9 (6.9)",
            None,
            0.4,
        ),
    ],
    ids=["references", "swin"],
)
def test_the_means_of_meters_count_for_their_epoch(
    line: str, samples_s: float | None, waiting: float, tmp_path: Path
) -> None:
    text = [line.format(epoch, step) for epoch in range(2) for step in range(0, 100, 20)]
    (tmp_path / "train.log").write_text("\n".join(text) + "\nTest:  [ 0/10]  eta: 0:00:01  time: 9.0  data: 9.0\n")
    found = read_logs([tmp_path / "train.log"]).files[0]
    assert [(one.time.steps, one.time.seconds, one.time.waiting) for one in found.epochs] == [(80, 40, waiting)] * 2
    assert [one.rate_sps for one in found.epochs] == [samples_s] * 2
    assert found.facts.settings["epochs"][0].value == 2
