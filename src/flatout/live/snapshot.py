"""What the live page shows at one moment: the state of a run, and its charts in a bounded number of points."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from flatout.live.columns import JoinedSeries, JoinedSteps
from flatout.live.history import History
from flatout.live.state import State

MOST_BARS = 400
MOST_POINTS = 200
SLOW = 2.0  # times the median of the bars: marked


def snapshot(history: History, state: State) -> bytes:
    """The state and the charts as JSON on one line, at most some 40 KiB.

    Args:
        history: of the run.
        state: of the same moment.
    """
    start_ns = history.info.get("start_ns") or history.now_ns
    found = {
        "state": state.to_dict(),
        "steps": _steps(history.rows, start_ns),
        "series": [_line(name, series, start_ns) for name, series in history.series.items()],
        "now": round((history.now_ns - start_ns) / 1e9, 3),
    }
    # NaN and infinity, which a loss may be, are no JSON.
    return json.dumps(_finite(found), separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")


def _steps(rows: JoinedSteps, start_ns: int) -> dict[str, Any] | None:
    if not len(rows):
        return None
    joined = -(-len(rows) // MOST_BARS)
    first = np.arange(0, len(rows), joined)
    counts = np.add.reduceat(np.array(rows.steps), first)
    begin = np.array(rows.start_ns, np.int64)[first]
    ends = np.append(begin[1:], rows.end_ns[-1])
    sums = {name: np.add.reduceat(np.array(values), first) for name, values in rows.sums.items()}
    total = sum(sums.values(), np.zeros(len(first))) / counts
    longest = np.maximum.reduceat(np.array(rows.longest), first)
    return {
        "number": np.array(rows.first)[first].tolist(),
        "count": counts.tolist(),
        "joined": int(counts.max()),
        "start": _rounded((begin - start_ns) / 1e9),
        "length": _rounded(np.maximum(ends - begin, 0) / 1e9),
        "total": _rounded(total),
        "parts": {name: _rounded(values / counts) for name, values in sums.items()},
        "slow": (longest > SLOW * float(np.median(total))).astype(int).tolist(),
    }


def _line(name: str, series: JoinedSeries, start_ns: int) -> dict[str, Any]:
    points = series.points()
    joined = max(-(-len(points) // MOST_POINTS), 1)
    chosen = [*points[::joined], *(points[-1:] if (len(points) - 1) % joined else [])]
    return {
        "name": name,
        "unit": series.unit,
        "time": [round((time_ns - start_ns) / 1e9, 3) for time_ns, _ in chosen],
        "value": _rounded(np.array([value for _, value in chosen], float)),
    }


def _rounded(values: np.ndarray[Any, Any]) -> list[float]:
    return [float(f"{value:.5g}") for value in values.tolist()]


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value
