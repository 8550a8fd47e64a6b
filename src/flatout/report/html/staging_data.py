"""What the page of a staging shows: its rates over time, and what came of it."""

from __future__ import annotations

from typing import Any

from flatout.stage.pace import Pace, Point
from flatout.units import counted, duration, size

MIB = 1 << 20
Values = dict[str, Any]


def _charts(pace: Pace, duration_s: float, copied: int, copied_bytes: int) -> list[Values]:
    """Lines over time; a staging that went on after the last point is closed by its totals."""
    points = list(pace.points)
    if not points:
        return []
    last = points[-1]
    if duration_s >= last.at_s + pace.every_s:
        points.append(Point(duration_s, copied, copied_bytes, last.concurrency, last.retries, last.failed))
    before = [Point(0.0, 0, 0, 0, 0, 0), *points[:-1]]
    spans = [max(now.at_s - then.at_s, 1e-9) for then, now in zip(before, points, strict=True)]
    read = [now.copied_bytes - then.copied_bytes for then, now in zip(before, points, strict=True)]
    files = [now.copied - then.copied for then, now in zip(before, points, strict=True)]
    lines: dict[str, list[float]] = {
        "MiB/s": [_short(count / MIB / span) for count, span in zip(read, spans, strict=True)],
        "files/s": [_short(count / span) for count, span in zip(files, spans, strict=True)],
        "transfers at once": [point.concurrency for point in points],
        "retries so far": [point.retries for point in points],
        "failed so far": [point.failed for point in points],
    }
    at = [round(point.at_s, 3) for point in points]
    return [
        {"title": name, "floor": 0, "lines": [{"name": name, "x": at, "y": values}]}
        for name, values in lines.items()
        if any(values)
    ]


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def staging_data(pace: Pace, result: Values, text: str) -> Values:
    """Everything that the page of a staging shows.

    Args:
        pace: of its progress.
        result: what ``--json`` prints, of a copy or of a packing.
        text: what is printed otherwise.
    """
    packed = "packed" in result
    files, read = (result["packed" if packed else "copied"], result["packed_bytes" if packed else "copied_bytes"])
    duration_s = result["duration_s"]
    rate = f": {size(read / duration_s)}/s" if files and duration_s > 0 else ""
    return {
        "verdict": f"{counted(files, 'file')} {'packed' if packed else 'copied'}, {size(read)}, in "
        f"{duration(duration_s)}{rate}",
        "text": text,
        "result": result,
        "charts": _charts(pace, duration_s, files, read),
        "span": [0.0, max(duration_s, 1e-3)],
        "notes": [f"Each point is the rate since the one before it, at least {pace.every_s:g} s."],
    }
