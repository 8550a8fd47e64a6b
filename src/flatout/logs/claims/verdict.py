"""The verdict on one claim, and how ranges are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flatout.logs.observations import Source

Verdict = Literal["consistent", "off", "unknown"]
SLACK = 0.04  # what rounding in prose explains


@dataclass(frozen=True)
class Claim:
    """One statement of a log, checked.

    Attributes:
        id: Of the check; stable, for scripts.
        verdict: "consistent", "off", or "unknown": the log cannot tell.
        said: What the log says, in short.
        found: What its own numbers give, or why they give nothing.
        sources: The lines with the statement, then those it was checked against.
        off_by: Said over found, or its inverse, whichever is above 1; None: not a ratio.
    """

    id: str
    verdict: Verdict
    said: str
    found: str
    sources: tuple[Source, ...]
    off_by: float | None = None


def judged(
    id: str,
    said: tuple[float, float],
    found: tuple[float, float],
    words: tuple[str, str],
    sources: tuple[Source, ...],
    slack: float = SLACK,
) -> Claim:
    """Compare a range said with a range found: consistent if it lies within, up to ``slack``."""
    low, high = found
    if low * (1 - slack) <= said[0] and said[1] <= high * (1 + slack):
        return Claim(id, "consistent", words[0], words[1], sources)
    middle, real = (said[0] + said[1]) / 2, (low + high) / 2
    off_by = max(middle / real, real / middle) if middle > 0 and real > 0 else None
    if off_by is not None and off_by <= 1 + slack:  # the same middle: the ends differ
        off_by = max(said[1] / high, low / said[0] if said[0] > 0 else 1.0, 1 + slack)
    return Claim(id, "off", words[0], words[1], sources, off_by)


def span(low: float, high: float, unit: str = "", digits: int = 1) -> str:
    """A range as text: "2.9-4.0x", or one number where both ends read alike."""
    first, last = f"{low:,.{digits}f}", f"{high:,.{digits}f}"
    return f"{first}{unit}" if first == last else f"{first}-{last}{unit}"


def time_span(low_s: float, high_s: float) -> str:
    """A range of durations in the unit that the larger one needs."""
    for limit, unit_s, unit in (
        (120, 1, "s"),
        (10800, 60, "min"),
        (48 * 3600, 3600, "h"),
        (float("inf"), 86400, "days"),
    ):
        if high_s < limit:
            return span(low_s / unit_s, high_s / unit_s, f" {unit}")
    raise AssertionError("the last limit is infinite")
