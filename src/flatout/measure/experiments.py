"""What the steps after the window show: the gain of each change, and the time of hooks and of the garbage collector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flatout.probe import events as kinds
from flatout.probe.contract import HOOKS, THREADS
from flatout.record import Events, ProcessRecord
from flatout.results import Line

# Settings for debugging, by the record's name.
DEBUGGING = {
    "anomaly_mode": "anomaly detection",
    "profiler": "torch's profiler",
    "trace_function": "a trace function (sys.settrace)",
    "profile_function": "a profile function (sys.setprofile)",
    "monitoring_tool": "a tool of sys.monitoring",
    "tracemalloc": "tracemalloc",
    "deterministic": "deterministic mode",
    "cudnn_deterministic": "cuDNN's deterministic mode",
    "backward_threads": "the single-threaded mode of backward passes",
    "validate_args": "the argument check of torch.distributions",
    "counting_mode": "a mode that runs Python for each operator (FlopCounterMode)",
}


@dataclass(frozen=True)
class Tried:
    """One change: blocks of steps with it alternated with unchanged ones. Times are of a step's own part, in seconds.

    Attributes:
        blocks: with the change.
        steps: in a block.
        unchanged_s: median of the blocks' means.
        changed_s: the same with the change.
        gain: median, over the blocks, of 1 - changed / mean of the unchanged blocks on both sides.
        low: lower bound of that median, at 94% or more (order statistics of the binomial distribution).
    """

    blocks: int
    steps: int
    unchanged_s: float
    changed_s: float
    gain: float
    low: float

    @property
    def proven(self) -> bool:
        """True if the change made the steps faster."""
        return self.low > 0


@dataclass(frozen=True)
class Experiments:
    """All that was tried after the window.

    Attributes:
        tried: by the change, as the record names it.
        hooks: the user's hooks that ran, most time first; their seconds are those of one step.
        hooks_share: of a step's own part; None: not measured.
        collector_share: of a step's own part, in Python's garbage collector; None: not measured.
        collections: in a step.
        steps: that were measured unchanged.
        debugging: settings and environment variables for debugging that were on, with their line or value.
        skipped: why nothing, or not all, was tried, in the probe's words; None: all was.
    """

    tried: Mapping[str, Tried] = field(default_factory=dict)
    hooks: tuple[Line, ...] = ()
    hooks_share: float | None = None
    collector_share: float | None = None
    collections: float = 0.0
    steps: int = 0
    debugging: Mapping[str, str] = field(default_factory=dict)
    skipped: str | None = None

    @property
    def because(self) -> str:
        """Why there is no measurement."""
        return self.skipped or "no steps were measured after the window"

    def costly_settings(self) -> dict[str, Tried]:
        """Settings for debugging that were shown to cost time, the most first."""
        found = {name: one for name, one in self.tried.items() if name in DEBUGGING and one.proven}
        return dict(sorted(found.items(), key=lambda item: -item[1].gain))

    def setting_with_line(self, name: str) -> str:
        """The setting and, in brackets, the line that switches it on, if it is known."""
        line = self.debugging.get(name)
        return DEBUGGING[name] + (f" ({line})" if line else "")

    def of_threads(self) -> dict[int, Tried]:
        """The numbers of intra-op threads that were tried."""
        counts = {name.removeprefix(THREADS): one for name, one in self.tried.items() if name.startswith(THREADS)}
        return {int(count): one for count, one in counts.items() if count.isdecimal()}

    def best_threads(self) -> tuple[int, Tried] | None:
        """The number of intra-op threads with the largest gain, if one was shown."""
        proven = {count: one for count, one in self.of_threads().items() if one.proven}
        best = max(proven, key=lambda count: proven[count].gain, default=None)
        return None if best is None else (best, proven[best])


_LEAST_BLOCKS = 4  # fewer prove no gain: all of 3 lie on one side of the median in 1 of 8 cases


def read_experiments(process: ProcessRecord, nothing: str = "") -> Experiments:
    """What the training process tried.

    Args:
        process: its record.
        nothing: why there may be nothing, where the process itself does not say; empty: not known.
    """
    blocks = process.of_kinds(kinds.EXPERIMENT)
    blocks = blocks[np.argsort(blocks["start"], kind="stable")]
    blocks = blocks[(blocks["a"] > 0) & (blocks["b"] > 0)]
    step_s = blocks["b"] / np.maximum(blocks["a"], 1) / 1e9
    names = np.array([process.names.text(int(id)) if id else "" for id in blocks["arg"].tolist()], object)
    unchanged = np.flatnonzero(names == "")
    tried = {}
    for name in dict.fromkeys(names.tolist()):
        rows = np.flatnonzero(names == name)
        if not name or name == HOOKS or not len(unchanged):
            continue
        one = _tried(blocks["a"][rows], step_s, rows, unchanged)
        if len(rows) >= _LEAST_BLOCKS or one.gain < 0:  # what is far slower is not tried again
            tried[name] = one
    hooked = blocks[names == HOOKS]
    plain = blocks[unchanged]
    collections = _during(process.of_kinds(kinds.COLLECTION), plain)
    steps = int(plain["a"].sum())
    return Experiments(
        tried=tried,
        hooks=_hooks(process, hooked),
        hooks_share=_share(_during(process.of_kinds(kinds.HOOK), hooked), hooked),
        collector_share=_share(collections, plain),
        collections=float(collections["b"].sum()) / steps if steps else 0.0,
        steps=steps,
        debugging=dict(process.info.get("debugging") or {}),
        skipped=process.info.get("experiments_skipped") or ("" if len(blocks) else nothing) or None,
    )


def _tried(
    steps: NDArray[np.int64], step_s: NDArray[np.float64], rows: NDArray[np.int64], unchanged: NDArray[np.int64]
) -> Tried:
    gains = []
    for row in rows.tolist():
        place = int(np.searchsorted(unchanged, row))
        beside = unchanged[max(place - 1, 0) : place + 1]
        gains.append(1.0 - float(step_s[row]) / float(step_s[beside].mean()))
    gains.sort()
    # The second smallest of 7 exceeds the median of the population in 6% of the cases; so does the smallest of 4.
    low = gains[1] if len(gains) >= 7 else gains[0]
    return Tried(
        blocks=len(rows),
        steps=int(np.median(steps)),
        unchanged_s=float(np.median(step_s[unchanged])),
        changed_s=float(np.median(step_s[rows])),
        gain=float(np.median(gains)),
        low=low,
    )


def _during(events: Events, blocks: Events) -> Events:
    """The events of these blocks: they have their start."""
    return events[np.isin(events["start"], blocks["start"])]


def _share(spent: Events, blocks: Events) -> float | None:
    own_ns = int(blocks["b"].sum())
    return min(int(spent["a"].sum()) / own_ns, 1.0) if own_ns else None


def _hooks(process: ProcessRecord, blocks: Events) -> tuple[Line, ...]:
    """Each hook with its seconds in a step, most first."""
    steps = int(blocks["a"].sum())
    events = _during(process.of_kinds(kinds.HOOK), blocks)
    spent: dict[tuple[str, int, str, str], float] = {}
    for event in events:
        place = process.names.get(int(event["arg"]), "site")
        key = (place.get("file", "?"), place.get("line", 0), place.get("function", "?"), place.get("source", ""))
        spent[key] = spent.get(key, 0.0) + int(event["a"]) / 1e9 / steps
    return tuple(Line(*key, seconds=seconds) for key, seconds in sorted(spent.items(), key=lambda item: -item[1]))
