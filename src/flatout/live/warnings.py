"""Warnings about a run that goes on, while there is time to act: one small pure function each, in a flat list."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from flatout.live.history import History
from flatout.live.projection import Plan, predict_end
from flatout.measure.thresholds import DOMINANT_SHARE
from flatout.units import counted, duration, percent, size

# A trend is told from at least this long, and at most from this much of the past.
TREND_LEAST_S, TREND_MOST_S = 20.0, 300.0
# Allocators and caches fluctuate by tens of MiB.
LEAST_DECLINE_BYTES = 64 << 20
# Where the end of the training is not known: what takes longer than this is not warned about.
HORIZON_S = 2 * 3600.0
NEARLY_FULL = 0.05  # of the whole is left
IDLE_UTIL, IDLE_S, IDLE_STEPS = 0.02, 10.0, 20
STALLED_S, STALLED_STEPS = 30.0, 20.0  # no step for this long, and for as many times the usual step
RANK_WAITED = 0.1  # of the others' time
_LOSS = re.compile(r"(^|[^a-z])loss($|[^a-z])")


@dataclass(frozen=True)
class Warn:
    """One warning.

    Attributes:
        id: of its kind: fixed, scripts may read it.
        text: one sentence.
    """

    id: str
    text: str


@dataclass(frozen=True)
class Look:
    """What warnings look at.

    Attributes:
        history: of the run.
        plan: what the user said about it.
        left_s: predicted time to the end of the training; None: not known.
    """

    history: History
    plan: Plan
    left_s: float | None


Rule = Callable[[Look], Warn | None]


def warnings_of(history: History, plan: Plan) -> tuple[Warn, ...]:
    """All warnings, the most urgent kind first; none about a run that has ended."""
    if history.stop is not None:
        return ()
    end = predict_end(history, plan)
    left_s = (end.at_ns - history.now_ns) / 1e9 if end is not None and end.what == "training" else None
    look = Look(history, plan, left_s)
    return tuple(found for rule in RULES if (found := rule(look)) is not None)


def loss_not_finite(look: Look) -> Warn | None:
    """A logged loss became NaN or infinite."""
    bad = look.history.not_finite
    if bad is None or not _LOSS.search(bad[0].lower()):
        return None
    name, value, steps = bad
    return Warn("loss_not_finite", f"{name} became {'NaN' if math.isnan(value) else value} by step {steps:,}")


def stalled(look: Look) -> Warn | None:
    """No step for a long time."""
    history = look.history
    latest = history.latest()
    if not latest:
        return None
    usual_s = median(step.duration_s for step in latest)
    # Validation and checkpoints come between two passes: as long as the longest pause so far is no fault.
    longest_s = max(history.rows.longest, default=0.0)
    pauses = [(b[0] - a[1]) / 1e9 for a, b in zip(history.epochs[:-1], history.epochs[1:], strict=True)]
    allowed_s = max(STALLED_S, STALLED_STEPS * usual_s, 2 * longest_s, 2 * max(pauses, default=0.0))
    since_s = (history.now_ns - latest[-1].end_ns) / 1e9
    if since_s < allowed_s:
        return None
    return Warn("stalled", f"no training step for {duration(since_s)}; one takes {duration(usual_s)} in the median")


def memory_runs_out(look: Look) -> Warn | None:
    """The memory that is left shrinks steadily, or is nearly gone."""
    seen = [(s["t"], s["memory"]["available"], s["memory"].get("limit")) for s in look.history.samples
            if (s.get("memory") or {}).get("available") is not None]  # fmt: skip
    return _runs_out(look, "memory_runs_out", "memory", seen)


def shm_runs_out(look: Look) -> Warn | None:
    """/dev/shm, through which workers hand over batches, fills up."""
    seen = [
        (s["t"], s["shm"]["size"] - s["shm"]["used"], s["shm"]["size"]) for s in look.history.samples if s.get("shm")
    ]
    return _runs_out(look, "shm_runs_out", "/dev/shm", seen)


def _runs_out(look: Look, id: str, what: str, seen: Sequence[tuple[int, int, int | None]]) -> Warn | None:
    if not seen:
        return None
    left, whole = seen[-1][1:]
    if whole and left < NEARLY_FULL * whole:
        return Warn(id, f"only {size(left)} of {size(whole)} {what} are left")
    begin_ns = look.history.first_step_ns
    if begin_ns is None:
        return None  # loading a model and starting workers takes memory once
    since_ns = max(begin_ns, seen[-1][0] - round(TREND_MOST_S * 1e9))
    rate = decline([(t / 1e9, free) for t, free, _ in seen if t >= since_ns])
    if rate is None:
        return None
    gone_s = left / rate
    if gone_s > (1.5 * look.left_s if look.left_s is not None else HORIZON_S):
        return None
    return Warn(id, f"{what} runs out in about {duration(gone_s)}: {size(60 * rate)} a minute, {size(left)} left")


def decline(points: Sequence[tuple[float, float]]) -> float | None:
    """What a value loses a second, if it has done so steadily; None: it has not, or it was not seen for long enough.

    Args:
        points: times in seconds with values in bytes.
    """
    if len(points) < 9 or points[-1][0] - points[0][0] < TREND_LEAST_S:
        return None
    thirds = [points[len(points) * at // 3 : len(points) * (at + 1) // 3] for at in range(3)]
    first, middle, last = (median(value for _, value in third) for third in thirds)
    begin, finish = (median(time for time, _ in third) for third in (thirds[0], thirds[2]))
    lost = first - last
    # A growth that levels off, such as that of a cache, loses little in its second half.
    if lost < LEAST_DECLINE_BYTES or not 0.35 * lost <= middle - last <= lost:
        return None
    return (middle - last) / ((finish - begin) / 2)


def disk_for_checkpoints(look: Look) -> Warn | None:
    """The next checkpoints will not fit."""
    saved = [one for one in look.history.checkpoints if one.bytes > 0 and one.path]
    if not saved:
        return None
    latest = saved[-1]
    try:
        space = os.statvfs(Path(latest.path).parent)
    except (OSError, ValueError):
        return None  # a relative path, another machine, or removed meanwhile
    free = space.f_bavail * space.f_frsize
    folder = os.path.dirname(latest.path)
    if free < latest.bytes:
        return Warn("disk_for_checkpoints", f"the next checkpoint ({size(latest.bytes)}) does not fit: "
                    f"{size(free)} are free in {folder}")  # fmt: skip
    # Only new names take more space for good.
    kept = {one.path: one for one in saved if os.path.exists(one.path)}
    if len(kept) < 2 or len(saved) < 2:
        return None
    grown = sum(one.bytes for one in kept.values())
    span_s = (saved[-1].time_ns - saved[0].time_ns) / 1e9
    if span_s <= 0:
        return None
    full_s = free / (grown * (len(saved) - 1) / len(saved) / span_s)
    if full_s > (look.left_s if look.left_s is not None else HORIZON_S):
        return None
    return Warn("disk_for_checkpoints", f"the disk of {folder} is full of checkpoints in about {duration(full_s)}: "
                f"{size(latest.bytes)} each, {size(free)} free")  # fmt: skip


def gpu_idle(look: Look) -> Warn | None:
    """A GPU that computed before has done nothing for many steps."""
    history = look.history
    steps = [step for step in history.recent if step.end_ns > history.now_ns - IDLE_S * 1e9]
    if len(steps) < IDLE_STEPS:
        return None
    recent = [s for s in history.samples if s["t"] > history.now_ns - IDLE_S * 1e9]
    utils: dict[int, list[float]] = {}
    for sample in recent:
        for gpu in sample.get("gpus") or ():
            if gpu.get("util") is not None:
                utils.setdefault(gpu["index"], []).append(gpu["util"])
    idle = sorted(index for index, seen in utils.items() if len(seen) > 5 and max(seen) <= IDLE_UTIL)
    # With several GPUs, one that this training does not use is none of its faults: only all of them are.
    if not idle or len(idle) < len(utils):
        return None
    return Warn("gpu_idle", f"{'no GPU' if len(idle) > 1 else f'GPU {idle[0]} has not'} computed in the last "
                f"{counted(len(steps), 'step')}: at most {percent(IDLE_UTIL)} busy")  # fmt: skip


def rank_late(look: Look) -> Warn | None:
    """One rank comes last to most exchanges of gradients, and the others wait for it."""
    ranks = look.history.ranks
    if ranks is None or ranks.late_share < max(DOMINANT_SHARE, 1.5 / ranks.count) or ranks.waited_share < RANK_WAITED:
        return None
    return Warn("rank_late", f"rank {ranks.straggler} of {ranks.count} is late: it {ranks.part} "
                f"{duration(ranks.part_s)} a step, the median rank {duration(ranks.usual_s)}; the others wait for it "
                f"{percent(ranks.waited_share)} of their time")  # fmt: skip


def late(look: Look) -> Warn | None:
    """The training will end after its deadline."""
    end = predict_end(look.history, look.plan)
    start_ns, limit_s = look.history.info.get("start_ns"), look.plan.deadline_s
    if limit_s is None or start_ns is None or end is None or end.what != "training":
        return None
    over_s = (end.at_ns - start_ns) / 1e9 - limit_s
    if over_s <= 0:
        return None
    sure = (end.low_ns - start_ns) / 1e9 > limit_s
    return Warn("late", f"the projected end is {duration(over_s)} after the deadline"
                + ("" if sure else ", which lies within the interval"))  # fmt: skip


# The most urgent first.
RULES: tuple[Rule, ...] = (
    loss_not_finite,
    memory_runs_out,
    shm_runs_out,
    disk_for_checkpoints,
    stalled,
    gpu_idle,
    rank_late,
    late,
)
