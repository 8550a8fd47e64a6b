"""Five reports as people write them: each of their statements gets the verdict that arithmetic gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.logs.postmortem import Postmortem, read_logs

CASES = Path(__file__).parent / "data" / "cases"
A, B, C, D, E = (
    "a_remote_storage.md",
    "b_full_set.md",
    "c_volume_patches.md",
    "d_after_copying.md",
    "e_deadline_agent.txt",
)
# File, line, check, verdict, off by (None: not a ratio), what the finding says.
TABLE = [
    (A, 9, "rate_times_time", "consistent", None, "196.5 steps; 50,000 / 256 = 195.3"),
    (A, 10, "rate_times_time", "consistent", None, "193.1 steps"),
    (A, 11, "rate_times_time", "off", 1.05, "5% are missing: read before the epoch's end, or a smoothed rate"),
    (A, 16, "batches_in_flight", "off", 2.92, "9.2 GiB as float32, 2.3 GiB as uint8"),
    (B, 4, "epoch_duration", "consistent", None, "7.3 h"),
    (B, 4, "total_duration", "off", 1.05, "30.5 days"),
    (B, 25, "epoch_duration", "off", 1.62, "18.5-37.1 min"),
    (B, 25, "total_duration", "off", 1.55, "1.3-2.6 days"),
    (B, 26, "rates_across_batch_sizes", "off", 1.26, "10.5x in it/s is 15.8x in samples/s"),
    (B, 23, "factor_product", "consistent", None, "= 3.76x"),
    (B, 26, "factor_product", "off", 3.32, "= 3.76x"),
    (B, 16, "larger_batch", "off", 1.5, "about 1.0x"),
    (B, 9, "batches_fit", "off", 1.19, "55.1 GiB as float32"),
    (C, 11, "epoch_duration", "consistent", None, "20.0 h"),
    (C, 11, "total_duration", "consistent", None, "26.7 days"),
    (C, 11, "waiting_bound", "consistent", None, "9-18x at most"),
    (C, 16, "more_workers", "off", 1.33, "at most 2.2x"),
    (C, 17, "more_workers", "off", 1.33, "at most 4.5x"),
    (C, 18, "more_workers", "consistent", None, "at most 9x: 8 workers fetch at most 8 times what 1 did"),
    (C, 14, "larger_batch", "off", 2.0, "about 1.0x"),
    (C, 14, "device_memory_of_batch", "off", None, "the input alone"),
    (C, 15, "device_memory_of_batch", "off", None, "out of memory"),
    (C, 17, "options", "off", 1.46, "2.9-4.0x; 32 epochs take 6.7-9.3 days"),
    (C, 18, "options", "off", 1.2, "5.0-6.7x; 32 epochs take 4.0-5.3 days"),
    (C, 20, "options", "consistent", None, "3.8-6.7x"),
    (D, 3, "copy_rate", "off", None, "30 files/s, 3.2 MB/s"),
    (D, 17, "time_before", "off", 2.37, "25 min 21 s"),
    (
        D,
        19,
        "measured_speed_up",
        "off",
        2.42,
        "with the copy 39 min 10 s, longer than before: it pays off after 34 warm",
    ),
    (D, 21, "at_chance", "off", None, "1.0% ± 0.31% of 1,000 images: 0.6 standard errors away; acc5 5.3% is 0.4 away"),
    (D, 21, "at_chance", "off", None, "above ln 100 = 4.605: worse than guessing, while train loss 4.24 falls"),
    (E, 7, "epoch_duration", "off", 1.71, "51 s an epoch"),
    (E, 7, "total_duration", "off", 1.55, "150 epochs need 128.3 min"),
    (E, 7, "samples_rate", "off", 1.58, "at most 175 samples/s, 140 if one of 5 folds is held out"),
    (E, 8, "assumed_settings", "unknown", None, "assumed"),
    (E, 10, "factor_product", "consistent", None, "= 74.25x"),
    (E, 10, "throughput_and_work", "off", 14.95, "4.9x is throughput, 15x is doing less work"),
    (E, 9, "larger_batch", "unknown", None, "measure samples/s"),
    (E, 1, "devices", "off", None, "the run saw NVIDIA A100-SXM4-40GB"),
]
BEFORE_AND_AFTER = [
    ("copy_duration", 3.73, "it took 28 min"),
    ("copy_size", 4.58, "5.46 GB"),
    ("copy_gain", 3.99, "1.73-2.03x against warm epochs, 6.8x against the cold one"),
]


@pytest.fixture(scope="module")
def read() -> dict[str, Postmortem]:
    return {name: read_logs([CASES / name]) for name in (A, B, C, D, E)}


@pytest.mark.parametrize(("file", "line", "check", "verdict", "off_by", "found"), TABLE)
def test_every_row_is_judged_as_arithmetic_says(
    read: dict[str, Postmortem], file: str, line: int, check: str, verdict: str, off_by: float | None, found: str
) -> None:
    of_line = [one for one in read[file].claims if one.id == check and one.sources[0].line == line]
    matching = [one for one in of_line if found in one.found and one.verdict == verdict]
    assert matching, of_line
    assert matching[0].off_by == (None if off_by is None else pytest.approx(off_by, abs=0.01))
    assert matching[0].sources[0].text.split() == (CASES / file).read_text().splitlines()[line - 1].split()


def test_nothing_else_is_called_off(read: dict[str, Postmortem]) -> None:
    expected = {(file, line, check) for file, line, check, verdict, *_ in TABLE if verdict == "off"}
    expected.add((D, 16, "rate_times_time"))  # the short epoch of A, repeated in its table
    seen = {
        (f, one.sources[0].line, one.id) for f, found in read.items() for one in found.claims if one.verdict == "off"
    }
    assert seen == expected


def test_a_report_after_the_change_is_held_against_the_one_before() -> None:
    both = read_logs([CASES / A, CASES / D]).claims
    for check, off_by, found in BEFORE_AND_AFTER:
        (one,) = (one for one in both if one.id == check)
        assert (one.verdict, one.off_by) == ("off", pytest.approx(off_by, abs=0.01))
        assert found in one.found and {source.file for source in one.sources} == {A, D}


def test_the_end_is_projected_from_what_was_measured(read: dict[str, Postmortem]) -> None:
    c, e = (read[name].files[0].projection for name in (C, E))
    assert c is not None and c.total_s == pytest.approx(26.67 * 86400, rel=0.01) and c.low_s < c.remaining_s < c.high_s
    assert e is not None and e.total_s == pytest.approx(150 * 667 / 13)
    assert read[D].files[0].projection is None  # its ten epochs are over


def test_cold_and_warm_epochs_are_told_apart(read: dict[str, Postmortem]) -> None:
    cold = read[A].files[0].cold
    assert cold is not None and cold.ratio == pytest.approx(457 / 126, abs=0.01)
    assert read[D].files[0].cold is None
