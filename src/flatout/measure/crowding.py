"""Waits for cores that processes take which neither train nor make batches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from flatout.measure.cpu_time import Sample, tree_s
from flatout.terminal_text import one_line
from flatout.units import of_cores

_FULL = 0.9  # of the cores: fewer busy ones leave room for a thread that is ready
MATERIAL_CORES = 0.25  # the system's own services, and the recording, stay below
_MOST_NAMED = 3
_NAMED_CORES = 0.05


@dataclass(frozen=True)
class Crowding:
    """Other processes' use of the cores."""

    outside_cores: float  # mean cores that they used; those that the command started itself included
    part: float  # of the waits for a core, the part that they cause
    wait_share: float  # of the time, in which the training thread waits for a core because of them
    processes: tuple[str, ...]  # the busiest of them, with their mean cores; empty: not visible here
    started_cores: float = 0.0  # the part of ``outside_cores`` of processes that the command started


@dataclass(frozen=True)
class Contention:
    """What processes outside the command left it.

    Attributes:
        outside_cores: mean cores that they used.
        full_share: share of the time in which no core was idle.
        machine_cores: cores of the machine.
    """

    outside_cores: float
    full_share: float
    machine_cores: int

    @property
    def contending_cores(self) -> float:
        """Mean cores that they used while none was idle."""
        return self.outside_cores * self.full_share

    @property
    def left_cores(self) -> float:
        """Mean cores that they left; at least a tenth of one."""
        return max(self.machine_cores - self.outside_cores, 0.1)


def measure_crowding(
    samples: Sequence[Sample], main_cores: float | None, waits: float | None, beside: Collection[int] = ()
) -> Crowding | None:
    """Measure the waits in a window.

    Args:
        samples: of the machine, in time order.
        main_cores: mean cores that the training process used.
        waits: share of the time in which the training thread was ready and had no core.
        beside: processes of the command that neither train nor make batches, as of ``processes_beside``.

    Returns:
        The waits; None where the use of the cores or the waits were not measured.
    """
    busy = [sample["cpu"] for sample in samples if sample.get("cpu")]
    span_s = (samples[-1]["t"] - samples[0]["t"]) / 1e9 if samples else 0.0
    if not busy or span_s <= 0 or main_cores is None or waits is None:
        return None
    used = {name: cores for name, cores in _cores_of(samples, beside).items() if cores >= _NAMED_CORES}
    started = sum(used.values())
    tree = tree_s(samples) / span_s - started
    outside = max(fmean(sum(cores) for cores in busy) - tree, 0.0)
    full = _full_share(busy)
    # The training thread competes with everything but itself: the others' threads, and those of its own tree.
    own = max(tree - min(main_cores, 1.0 - waits), 0.0)
    part = outside / (outside + own) if outside > 0 else 0.0
    return Crowding(outside, part, min(waits, full) * part, _named(samples, used), started)


def measure_contention(samples: Iterable[Sample], begin_ns: int, end_ns: int) -> Contention | None:
    """What processes outside the command used between two times.

    Args:
        samples: of the machine, in time order.
        begin_ns: CLOCK_MONOTONIC, as is ``end_ns``.
        end_ns: end of the window.

    Returns:
        Their use; None where the use of the cores was not measured.
    """
    chosen = [sample for sample in samples if begin_ns <= sample["t"] <= end_ns and sample.get("cpu")]
    if len(chosen) < 2 or chosen[-1]["t"] <= chosen[0]["t"]:
        return None
    busy = [sample["cpu"] for sample in chosen]
    own = tree_s(chosen) / ((chosen[-1]["t"] - chosen[0]["t"]) / 1e9)
    outside = max(fmean(sum(cores) for cores in busy) - own, 0.0)
    return Contention(float(outside), _full_share(busy), len(busy[0]))


def processes_beside(samples: Iterable[Sample], main_pid: int, worker_pids: Collection[int]) -> frozenset[int]:
    """Processes that the training process started, and theirs, without its loader's workers and what these started.

    Args:
        samples: of the machine.
        main_pid: the training process.
        worker_pids: its loader's workers.
    """
    parents = {
        entry["pid"]: entry["ppid"]
        for sample in samples
        for entry in sample.get("processes") or ()
        if entry.get("ppid") is not None
    }
    return frozenset(pid for pid in parents if _started_by(pid, parents, main_pid, worker_pids))


def _full_share(busy: Sequence[Sequence[float]]) -> float:
    """Share of the samples in which no core was idle.

    On a machine with idle cores the training waits for its own threads, or for cores that it alone may use.
    """
    return sum(sum(cores) >= _FULL * len(cores) for cores in busy) / len(busy)


def _started_by(pid: int, parents: dict[int, int], main_pid: int, worker_pids: Collection[int]) -> bool:
    seen: set[int] = set()
    while pid in parents and pid not in seen and pid != main_pid and pid not in worker_pids:
        seen.add(pid)
        pid = parents[pid]
    return bool(seen) and pid == main_pid


def _cores_of(samples: Sequence[Sample], pids: Collection[int]) -> dict[str, float]:
    """Mean cores of processes, by name and number."""
    seen: dict[int, list[Sample]] = {}
    for entry in (entry for sample in samples for entry in sample.get("processes") or () if entry["pid"] in pids):
        seen.setdefault(entry["pid"], []).append(entry)
    span_s = (samples[-1]["t"] - samples[0]["t"]) / 1e9
    return {
        one_line(f"{entries[-1].get('name') or 'a process'} (pid {pid}), which this training started"): (
            entries[-1]["cpu_s"] - entries[0]["cpu_s"]
        )
        / span_s
        for pid, entries in seen.items()
    }


def _named(samples: Sequence[Sample], started: dict[str, float]) -> tuple[str, ...]:
    lists = [sample["neighbours"] for sample in samples if sample.get("neighbours") is not None]
    cores = dict(started)
    for entry in (entry for entries in lists for entry in entries):
        name = one_line(f"{entry['name']} (pid {entry.get('pid', '?')})")
        cores[name] = cores.get(name, 0.0) + entry["cores"] / len(lists)
    ordered = sorted(cores, key=lambda name: -cores[name])[:_MOST_NAMED]
    return tuple(f"{name}: {of_cores(cores[name])}" for name in ordered if cores[name] >= _NAMED_CORES)
