"""Durations, sizes, rates, shares and factors in human-readable form, formatted and parsed."""

from __future__ import annotations

import math
import re
from typing import Protocol

from flatout.errors import UsageError

UNKNOWN = "unknown"
# The most that an option may say: far above what is measured or stored, and far below what a record cannot hold.
LONGEST_S = 3650 * 86400.0
LARGEST_BYTES = 1 << 60
LARGEST_COUNT = 10**12

_BYTES_PER_UNIT = {
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", start=1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", start=1)},
}
_SECONDS_PER_UNIT = {
    "ms": 0.001,
    **dict.fromkeys(("s", "sec"), 1.0),
    **dict.fromkeys(("m", "min"), 60.0),
    "h": 3600.0,
    "d": 86400.0,
}
_NUMBER_AND_UNIT = re.compile(r"\s*(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def duration(seconds: float) -> str:
    """Write a duration with the two largest units that matter: "1 h 12 min", "7.1 s", "21 µs"."""
    if not math.isfinite(seconds):
        return UNKNOWN
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds == 0:
        return "0 s"
    # Each limit is where the rounded value would read "1000 µs" or "60.0 s".
    for limit_s, unit_s, unit in ((999.5e-9, 1e-9, "ns"), (999.5e-6, 1e-6, "µs"), (0.9995, 1e-3, "ms")):
        if seconds < limit_s:
            value = seconds / unit_s
            return f"{value:.{0 if value >= 9.95 else 1}f} {unit}"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    for limit_s, unit_s, unit, part_s, part in (
        (3599.5, 60, "min", 1, "s"),
        (48 * 3600 - 30, 3600, "h", 60, "min"),
        (math.inf, 86400, "d", 3600, "h"),
    ):
        if seconds < limit_s:
            whole, parts = divmod(round(seconds / part_s), unit_s // part_s)
            return f"{whole:,} {unit} {parts} {part}" if parts else f"{whole:,} {unit}"
    raise AssertionError("the last limit is infinite")


def same_unit(seconds: float, largest_s: float) -> str:
    """Write a duration so that a column of them compares at a glance.

    Args:
        seconds: The duration.
        largest_s: The largest duration of the column: it chooses unit and decimals for all.
    """
    if largest_s < 1:
        return f"{seconds * 1000:,.1f} ms"
    if largest_s < 10:
        return f"{seconds:.2f} s"
    if largest_s < 1000:
        return f"{seconds:.1f} s"
    if largest_s < 36000:
        return f"{seconds / 60:,.1f} min"
    return f"{seconds / 3600:,.1f} h"


def size(n_bytes: float) -> str:
    """Write a number of bytes in binary units: "2.5 GiB", "340 MiB", "512 B"."""
    if not math.isfinite(n_bytes):
        return UNKNOWN
    if n_bytes < 0:
        return f"-{size(-n_bytes)}"
    if n_bytes < 1023.5:
        return f"{n_bytes:.0f} B"
    power = 1
    while power < 4 and n_bytes / 1024**power >= 1023.5:
        power += 1
    value = n_bytes / 1024**power
    return f"{value:,.{0 if value >= 99.95 else 1}f} {'KMGT'[power - 1]}iB"


def rate(rate_sps: float) -> str:
    """Write a throughput in samples/s; zero or less means that none was measured."""
    if not math.isfinite(rate_sps) or rate_sps <= 0:
        return UNKNOWN
    return f"{three_figures(rate_sps)} samples/s"


def flops(rate: float) -> str:
    """Write a rate of floating-point operations: "93 GFLOP/s", "1.2 TFLOP/s"."""
    if not math.isfinite(rate) or rate <= 0:
        return UNKNOWN
    prefixes = ("", "k", "M", "G", "T", "P")
    power = 0
    while power < len(prefixes) - 1 and rate / 1000**power >= 999.5:
        power += 1
    value = rate / 1000**power
    return f"{value:,.{0 if value >= 9.95 else 1}f} {prefixes[power]}FLOP/s"


def percent(fraction: float, *, decimals: int | None = None) -> str:
    """Write a fraction as a percentage: "79%", "99.5%", "<0.1%".

    Args:
        fraction: 1.0 is all of it.
        decimals: As many, for columns that add up. None: as many as are needed for a value that is neither zero nor
            all not to read as if it were.
    """
    if not math.isfinite(fraction):
        return UNKNOWN
    value = fraction * 100
    if decimals is not None:
        return f"{value:.{decimals}f}%"
    if 0 < value < 0.05:
        return "<0.1%"
    if 99.95 <= value < 100:
        return ">99.9%"
    whole = value == 0 or 9.95 <= abs(value) < 99 or value == 100
    return f"{value:.{0 if whole else 1}f}%"


def counted(count: int, noun: str, several: str = "") -> str:
    """Write a number with its noun: "1 worker", "2 workers"; ``several`` if the plural is another word."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {several or noun + 's'}"


def of_cores(count: float) -> str:
    """Write a mean number of cores: "1 core", "1.3 cores"."""
    written = f"{count:.2g}"
    return f"{written} core{'' if written == '1' else 's'}"


def factor(value: float, *, like: float | None = None) -> str:
    """Write a factor on throughput: "1.04x", "2.1x", "12x".

    Args:
        value: The factor; 1.0 is no change.
        like: Another factor whose decimals are used, so that an interval reads evenly.
    """
    if not math.isfinite(value):
        return UNKNOWN
    magnitude = abs(value if like is None or not math.isfinite(like) else like)
    decimals = 2 if magnitude < 1.995 else 1 if magnitude < 9.95 else 0
    return f"{value:.{decimals}f}x"


class Interval(Protocol):
    """A predicted or measured factor with its bounds."""

    @property
    def predicted(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


def interval(gain: Interval) -> str:
    """Write a predicted factor with its interval: "2.1x (1.8-2.4)"."""
    low, high = (factor(bound, like=gain.predicted).removesuffix("x") for bound in (gain.low, gain.high))
    return f"{factor(gain.predicted)} ({low}-{high})"


def parse_duration(text: str, *, option: str = "duration") -> float:
    """Read "90s", "11m", "1h30m" or "1 h 12 min".

    Args:
        text: What the user typed.
        option: Its name in messages, such as "--seconds".

    Returns:
        Seconds, more than 0.

    Raises:
        UsageError: No unit, an unknown unit, nothing left to measure, or more than ``LONGEST_S``.
    """
    seconds = _parse_sum(text, option, _SECONDS_PER_UNIT, "ms, s, m, h, d", "90s, 11m or 1h30m")
    check_seconds(seconds, text, option=option)
    return seconds


def check_seconds(seconds: float, text: str, *, option: str) -> None:
    """Check a time of an option against ``LONGEST_S``; ``text`` is how it was written.

    Raises:
        UsageError: it is longer.
    """
    if seconds > LONGEST_S:
        raise UsageError(f'{option}: "{text}" is too long: at most {LONGEST_S / 86400:.0f}d are allowed')


def check_count(count: int, *, option: str) -> None:
    """Check a number of an option against ``LARGEST_COUNT``.

    Raises:
        UsageError: it is larger.
    """
    if count > LARGEST_COUNT:
        raise UsageError(f"{option} is {count}, but must be at most {LARGEST_COUNT}")


def parse_seconds(text: str, *, option: str, endless: str = "") -> float:
    """As ``parse_duration``; a bare number means seconds.

    Args:
        text: what the user typed.
        option: what the message calls it.
        endless: what to say to those who want no bound.

    Raises:
        UsageError: as ``parse_duration``.
    """
    try:
        seconds = float(text)
    except ValueError:
        return parse_duration(text, option=option)
    if not math.isfinite(seconds):
        raise UsageError(f"{option} is {text}, but must be a time, such as 90s{endless}")
    if seconds <= 0:
        raise UsageError(f"{option} is {text}, but must be above 0")
    check_seconds(seconds, text, option=option)
    return seconds


def parse_size(text: str, *, option: str = "size") -> int:
    """Read "30GiB", "500 MB" or "64KiB": GB is 1000³ bytes, GiB is 1024³.

    Args:
        text: What the user typed.
        option: What the message calls it, such as "--memory".

    Returns:
        Bytes, more than 0.

    Raises:
        UsageError: No unit, an unknown unit, zero, or more than ``LARGEST_BYTES``.
    """
    total = _parse_sum(text, option, _BYTES_PER_UNIT, "B, KB, MB, GB, TB, KiB, MiB, GiB, TiB", "30GiB or 500MB")
    if total > LARGEST_BYTES:
        raise UsageError(f'{option}: "{text}" is too large: at most {LARGEST_BYTES >> 40}TiB are allowed')
    return round(total)


def _parse_sum(text: str, option: str, units: dict[str, float] | dict[str, int], allowed: str, examples: str) -> float:
    """Add up the "number unit" pairs that make up all of ``text``."""
    total = 0.0
    position = 0
    while position < len(text) and (match := _NUMBER_AND_UNIT.match(text, position)):
        number, unit = match.groups()
        if unit.lower() not in units:
            raise UsageError(f'{option}: "{text}" has the unit "{unit}"; units are {allowed}; write {examples}')
        total += float(number) * units[unit.lower()]
        position = match.end()
    if position == 0 or position < len(text):
        if text.strip().startswith("-"):
            raise UsageError(f'{option}: "{text}" is below 0; it must be more than 0; write {examples}')
        try:
            float(text)
        except ValueError:
            raise UsageError(f'{option}: "{text}" is not understood; write {examples}') from None
        raise UsageError(f'{option}: "{text}" has no unit; units are {allowed}; write {examples}')
    if total <= 0:
        raise UsageError(f'{option}: "{text}" is nothing; it must be more than 0; write {examples}')
    return total


def three_figures(value: float) -> str:
    """Write a positive number with about three significant figures and no exponent."""
    decimals = max(0, 2 - math.floor(math.log10(value))) if value < 99.95 else 0
    return f"{value:,.{min(decimals, 6)}f}"


def short(value: float, figures: int = 3) -> str:
    """Write a number with so many significant figures, a large one without decimals: "0.12", "8.33", "1,410"."""
    return f"{value:,.0f}" if abs(value) >= 10**figures - 0.5 else f"{value:.{figures}g}"
