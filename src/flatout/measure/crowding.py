"""Waits for cores that processes outside the command's tree take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from flatout.measure.cpu_time import Sample, tree_s
from flatout.terminal_text import one_line

_FULL = 0.9  # of the cores: fewer busy ones leave room for a thread that is ready
_MOST_NAMED = 3
_NAMED_CORES = 0.05


@dataclass(frozen=True)
class Crowding:
    """Other processes' use of the cores."""

    outside_cores: float  # mean cores that processes outside the command's tree used
    part: float  # of the waits for a core, the part that they cause
    wait_share: float  # of the time, in which the training thread waits for a core because of them
    processes: tuple[str, ...]  # the busiest of them, with their mean cores; empty: not visible here


def measure_crowding(samples: Sequence[Sample], main_cores: float | None, waits: float | None) -> Crowding | None:
    """Measure the waits in a window.

    Args:
        samples: of the machine, in time order.
        main_cores: mean cores that the training process used.
        waits: share of the time in which the training thread was ready and had no core.

    Returns:
        The waits; None where the use of the cores or the waits were not measured.
    """
    busy = [sample["cpu"] for sample in samples if sample.get("cpu")]
    span_s = (samples[-1]["t"] - samples[0]["t"]) / 1e9 if samples else 0.0
    if not busy or span_s <= 0 or main_cores is None or waits is None:
        return None
    tree = tree_s(samples) / span_s
    outside = max(fmean(sum(cores) for cores in busy) - tree, 0.0)
    # On a machine with idle cores the training waits for its own threads, or for cores that it alone may use.
    full = sum(sum(cores) >= _FULL * len(cores) for cores in busy) / len(busy)
    # The training thread competes with everything but itself: the others' threads, and those of its own tree.
    own = max(tree - min(main_cores, 1.0 - waits), 0.0)
    part = outside / (outside + own) if outside > 0 else 0.0
    return Crowding(outside, part, min(waits, full) * part, _named(samples))


def _named(samples: Sequence[Sample]) -> tuple[str, ...]:
    lists = [sample["neighbours"] for sample in samples if sample.get("neighbours") is not None]
    cores: dict[str, float] = {}
    for entry in (entry for entries in lists for entry in entries):
        name = one_line(f"{entry['name']} (pid {entry.get('pid', '?')})")
        cores[name] = cores.get(name, 0.0) + entry["cores"] / len(lists)
    ordered = sorted(cores, key=lambda name: -cores[name])[:_MOST_NAMED]
    return tuple(f"{name}: {cores[name]:.2g} cores" for name in ordered if cores[name] >= _NAMED_CORES)
