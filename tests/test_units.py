"""How quantities read, at the limits where a unit or a number of decimals changes, and how typed ones are read."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout import units
from flatout.errors import UsageError
from flatout.results import Gain


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (340e-9, "340 ns"),
        (21e-6, "21 µs"),
        (2.13e-6, "2.1 µs"),
        (999.6e-6, "1.0 ms"),
        (0.34, "340 ms"),
        (0.9996, "1.0 s"),
        (7.12, "7.1 s"),
        (59.96, "1 min"),
        (200, "3 min 20 s"),
        (3599.6, "1 h"),
        (4320, "1 h 12 min"),
        (26.7 * 86400, "26 d 17 h"),
        (-7.1, "-7.1 s"),
        (math.nan, "unknown"),
        (math.inf, "unknown"),
    ],
)
def test_duration_uses_the_two_units_that_matter(seconds: float, text: str) -> None:
    assert units.duration(seconds) == text


@given(st.floats(min_value=1e-9, max_value=1e8))
def test_duration_reads_back_as_about_the_same(seconds: float) -> None:
    text = units.duration(seconds).replace(",", "").replace("µs", "us")
    if text.endswith((" ns", " us")):
        return
    assert units.parse_duration(text) == pytest.approx(seconds, rel=0.06)


@pytest.mark.parametrize(
    ("seconds", "largest_s", "text"),
    [(0.0123, 0.5, "12.3 ms"), (0.2, 9, "0.20 s"), (7.14, 999, "7.1 s"), (30, 4000, "0.5 min"), (7200, 40000, "2.0 h")],
)
def test_a_column_of_durations_has_one_unit(seconds: float, largest_s: float, text: str) -> None:
    assert units.same_unit(seconds, largest_s) == text


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1023.6 * 1024, "1.0 MiB"),
        (340 * 2**20, "340 MiB"),
        (2.5 * 2**30, "2.5 GiB"),
        (5000 * 2**40, "5,000 TiB"),
        (-(2**30), "-1.0 GiB"),
        (math.nan, "unknown"),
    ],
)
def test_size_is_in_binary_units(n_bytes: float, text: str) -> None:
    assert units.size(n_bytes) == text


@pytest.mark.parametrize(
    ("rate_sps", "text"),
    [
        (1234.4, "1,234 samples/s"),
        (99.96, "100 samples/s"),
        (12.34, "12.3 samples/s"),
        (0.0432, "0.0432 samples/s"),
        (0, "unknown"),
        (math.nan, "unknown"),
    ],
)
def test_rate_has_three_figures_and_zero_is_not_a_rate(rate_sps: float, text: str) -> None:
    assert units.rate(rate_sps) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0, "0%"),
        (0.0001, "<0.1%"),
        (0.0042, "0.4%"),
        (0.0995, "10%"),
        (0.789, "79%"),
        (0.994, "99.4%"),
        (0.9999, ">99.9%"),
        (1, "100%"),
        (math.nan, "unknown"),
    ],
)
def test_percent_never_rounds_to_nothing_or_to_all(fraction: float, text: str) -> None:
    assert units.percent(fraction) == text


@pytest.mark.parametrize(
    ("fraction", "text"), [(0.5, "50.0%"), (0.00001, "0.0%"), (1, "100.0%"), (math.nan, "unknown")]
)
def test_percent_of_a_column_has_as_many_decimals_in_each_row(fraction: float, text: str) -> None:
    assert units.percent(fraction, decimals=1) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 workers"), (1, "1 worker"), (1200, "1,200 workers")])
def test_a_count_agrees_with_its_noun(count: int, text: str) -> None:
    assert units.counted(count, "worker") == text


@pytest.mark.parametrize(
    ("gain", "text"),
    [
        (Gain(2.1, 1.8, 2.4), "2.1x (1.8-2.4)"),
        (Gain(1.0, 0.98, 1.021), "1.00x (0.98-1.02)"),
        (Gain(1.96, 1.5, 2.2), "1.96x (1.50-2.20)"),
        (Gain(12.4, 9.6, 15.2), "12x (10-15)"),
        (Gain(2.0, 1.0, math.inf), "2.0x (1.0-unknown)"),
    ],
)
def test_interval_has_the_decimals_of_its_prediction(gain: Gain, text: str) -> None:
    assert units.interval(gain) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("11m", 660),
        ("90s", 90),
        ("1h30m", 5400),
        ("1 h 12 min", 4320),
        ("500ms", 0.5),
        ("1.5H", 5400),
        ("2d", 172800),
    ],
)
def test_parse_duration_reads_units_and_sums(text: str, seconds: float) -> None:
    assert units.parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("90", "has no unit"),
        ("", "not understood"),
        ("soon", "not understood"),
        ("1h30", "not understood"),
        ("-5s", "is below 0"),
        ("2ep", 'the unit "ep"'),
        ("0s", "more than 0"),
    ],
)
def test_parse_duration_refuses_with_option_value_and_example(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        units.parse_duration(text, option="--seconds")
    message = str(refused.value)
    assert said in message
    assert message.startswith(f'--seconds: "{text}"')
    assert "11m" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "n_bytes"), [("30GiB", 30 * 2**30), ("500 MB", 500_000_000), ("64kib", 65536), ("12B", 12)]
)
def test_parse_size_tells_decimal_from_binary_units(text: str, n_bytes: int) -> None:
    assert units.parse_size(text) == n_bytes


@pytest.mark.parametrize("text", ["99999999999d", "1e99s", "1e400s"])
def test_a_time_that_no_record_can_hold_is_refused(text: str) -> None:
    for parse in (units.parse_duration, units.parse_seconds):
        with pytest.raises(UsageError, match=f'--seconds: "{text}" is too long: at most 3650d'):
            parse(text, option="--seconds")


@pytest.mark.parametrize("text", ["1e400GB", "9999999TiB"])
def test_a_size_that_no_disk_has_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f'--min-free: "{text}" is too large: at most 1048576TiB'):
        units.parse_size(text, option="--min-free")


@pytest.mark.parametrize("text", ["30", "30G", "GiB", "0GiB", "1m"])
def test_parse_size_refuses_what_has_no_clear_unit(text: str) -> None:
    with pytest.raises(UsageError, match=r"--memory.*30GiB"):
        units.parse_size(text, option="--memory")


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (1.5e6, "1.5 MFLOP/s"),
        (93e9, "93 GFLOP/s"),
        (999.7e9, "1.0 TFLOP/s"),
        (1.98e15, "2.0 PFLOP/s"),
        (3e18, "3,000 PFLOP/s"),
        (200.0, "200 FLOP/s"),
        (0.0, "unknown"),
        (math.inf, "unknown"),
    ],
)
def test_rates_of_arithmetic_read_in_powers_of_1000(rate: float, text: str) -> None:
    assert units.flops(rate) == text
