"""Numbers as the sentences of causes and remedies write them."""

from __future__ import annotations


def percent(share: float) -> str:
    """A share (0..1) as whole percent, or with one decimal below ten."""
    value = share * 100
    return f"{value:.0f} %" if abs(value) >= 10 or value == 0 else f"{value:.1f} %"


def duration(seconds: float) -> str:
    """Seconds with a unit that keeps two or three digits."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.3g} min"


def size(count_bytes: float) -> str:
    """Bytes in binary units."""
    value, unit = float(count_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.3g} {unit}"


def counted(count: int, noun: str) -> str:
    """``1 worker``, ``2 workers``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
