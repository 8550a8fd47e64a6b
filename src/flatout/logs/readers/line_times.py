"""The time at the head of a line."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_TIME = re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[ T]+(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?(Z|[+-]\d\d:?\d\d)?")


def line_time(text: str) -> tuple[float | None, bool]:
    """Seconds since 1970, and whether the line names its zone; without one it is counted as UTC."""
    found = _TIME.search(text, 0, 80)
    if found is None:
        return None, False
    year, month, day, hour, minute, second = (int(found[place]) for place in range(1, 7))
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        return None, False
    moment += float(f"0.{found[7]}") if found[7] else 0.0
    zone = found[8]
    if zone and zone != "Z":
        offset = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
        moment -= offset if zone[0] == "+" else -offset
    return moment, zone is not None
