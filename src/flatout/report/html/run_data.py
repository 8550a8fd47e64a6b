"""What the page of a run shows beside its report: steps, use of the machine, and what each thread did."""

from __future__ import annotations

from typing import Any

import numpy as np

from flatout.export.machine_counters import machine_counters, process_counters
from flatout.export.run_tracks import SLOW, run_timeline
from flatout.export.timeline import Counter, Timeline
from flatout.measure.step_phases import step_phases
from flatout.measure.training import Training, find_training
from flatout.record import Run
from flatout.report.html.step_bars import bars
from flatout.report.html.thinning import Lane, lanes_of, thinned
from flatout.units import counted

MOST_STEPS = 1_500  # bars of a chart
MOST_POINTS = 800  # of a line
Values = dict[str, Any]


def run_data(run: Run, report: Values) -> Values:
    """Everything that the page of a run shows.

    Args:
        run: the record.
        report: its diagnosis, as ``--json`` gives it.
    """
    training = find_training(run)
    timeline = run_timeline(run, {})
    begin, finish = _span(timeline, training)
    lanes, left_out = thinned(lanes_of(timeline, begin, finish))
    samples = list(run.system())
    counters = [*machine_counters(samples)]
    if training is not None:
        counters += process_counters(samples, training.process.pid)
    notes = []
    if left_out:
        notes.append(
            f"{counted(left_out, 'short or deeply nested span')} left out to keep the page small; of the outermost "
            "ones the share of the time is grey."
        )
    names = sorted({name for lane in lanes for name in lane.names})
    return {
        "report": report,
        "span": [0.0, (finish - begin) / 1e9],
        "steps": _steps(training, begin, notes) if training is not None else None,
        "series": [_line(counter, begin, finish, notes) for counter in counters if len(counter.time) > 1],
        "names": names,
        "lanes": [_lane(lane, names, begin) for lane in lanes],
        "notes": notes,
    }


def _span(timeline: Timeline, training: Training | None) -> tuple[int, int]:
    """From the start of the training process to the last thing that any process did, ns."""
    parts = [part for process in timeline.processes for track in process.tracks for part in track.slices if len(part)]
    begin = min((int(part.start.min()) for part in parts), default=0)
    finish = max((int(part.end.max()) for part in parts), default=1)
    return (max(begin, training.begin_ns) if training is not None else begin), max(finish, begin + 1)


def _steps(training: Training, begin: int, notes: list[str]) -> Values:
    """Steps with their phases; of many the slowest stand alone, the others are joined and shown by their means."""
    table = training.steps
    start = table.start_ns.astype(np.int64)
    finish = start + np.round(table.duration_s * 1e9).astype(np.int64)
    parts = step_phases(table, training.events)
    slow = table.duration_s > SLOW * float(np.median(table.duration_s))
    shown = bars(table.duration_s, MOST_STEPS)
    first = shown.first
    if shown.most > 1:
        alone = f"The {counted(shown.alone, 'slowest step')} have bars of their own. " if shown.alone else ""
        notes.append(
            f"{alone}Each other bar is the mean of up to {shown.most} steps; one is marked where any of them was slow."
        )
    counts = np.diff(np.append(first, len(table)))

    def mean(values: np.ndarray[Any, Any]) -> list[float]:
        return _rounded(np.add.reduceat(values, first) / counts)

    ends_of = np.append(start[first[1:]], finish[-1:])
    return {
        "number": first.tolist(),
        "joined": shown.most,
        "count": counts.tolist(),
        "start": _seconds(start[first], begin),
        "length": _rounded(np.maximum(np.minimum(ends_of, np.maximum.reduceat(finish, first)) - start[first], 0) / 1e9),
        "total": mean(table.duration_s),
        "parts": {name: mean(values) for name, values in parts.items()},
        "slow": np.maximum.reduceat(slow.astype(int), first).tolist(),
    }


def _line(counter: Counter, begin: int, finish: int, notes: list[str]) -> Values:
    """A counter with at most ``MOST_POINTS`` points: of those that are joined the mean, of memory the most."""
    inside = (counter.time >= begin) & (counter.time <= finish)
    time, value = counter.time[inside], counter.value[inside]
    if len(time) > MOST_POINTS:
        joined = -(-len(time) // MOST_POINTS)
        first = np.arange(0, len(time), joined)
        means = np.add.reduceat(value, first) / np.diff(np.append(first, len(time)))
        time, value = time[first], np.maximum.reduceat(value, first) if counter.unit == "GiB" else means
        notes.append(
            f"{counter.name}: each point is {'the most' if counter.unit == 'GiB' else 'the mean'} of {joined}."
        )
    return {"name": counter.name, "unit": counter.unit, "time": _seconds(time, begin), "value": _rounded(value)}


def _lane(lane: Lane, names: list[str], begin: int) -> Values:
    index = {name: place for place, name in enumerate(names)}
    return {
        "label": lane.label,
        "rows": lane.rows,
        "start": _seconds(lane.start, begin),
        "length": _rounded((lane.end - lane.start) / 1e9),
        "depth": lane.depth.tolist(),
        "name": [index[name] for name in lane.names],
        "notes": list(lane.notes),
        "rest": [round(share, 3) for share in lane.rest.tolist()],
    }


def _seconds(times: np.ndarray[Any, Any], begin: int) -> list[float]:
    return [round(float(time) / 1e9, 6) for time in times - begin]


def _rounded(values: np.ndarray[Any, Any]) -> list[float]:
    return [float(f"{value:.6g}") for value in values.tolist()]
