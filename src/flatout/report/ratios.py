"""A measured factor in words."""

from __future__ import annotations

from flatout.compare.ratio import Ratio
from flatout.units import factor

# An interval this many times as high as low: its middle alone would promise what nobody measured.
_WIDE = 3.0


def bounds(ratio: Ratio) -> str:
    """The interval, as in "1.8x to 2.1x"."""
    return f"{factor(ratio.low, like=ratio.factor)} to {factor(ratio.high, like=ratio.factor)}"


def faster(ratio: Ratio) -> str:
    """What is proved of a gain: the factor with its interval; of a wide one, the interval first."""
    if ratio.high > _WIDE * ratio.low:
        low, high = factor(ratio.low), factor(ratio.high)
        return f"faster, {low} to {high} (90% interval; runs differ too much to say more)"
    return f"{factor(ratio.factor)} as fast ({bounds(ratio)}, 90% interval)"
