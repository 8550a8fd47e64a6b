"""CPU time of the command's processes in a window, those included that ended between two samples."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

Sample = dict[str, Any]


def tree_s(samples: Sequence[Sample]) -> float:
    """CPU seconds of the command's tree; of processes that start in the window, from their start on.

    A process that ends between two samples has used more than the last of them shows. Once its parent has waited for
    it, the kernel counts the whole as the parent's time of children.
    """
    if not samples:
        return 0.0
    first, last = _processes(samples[0]), _latest(samples)
    sampled_s = sum(max(entry["cpu_s"] - _cpu_s(first, pid), 0.0) for pid, entry in last.items())
    end = _processes(samples[-1])
    reaped_s = sum(map(_with_children_s, end.values())) - sum(map(_with_children_s, first.values()))
    return float(max(sampled_s, reaped_s))


def workers_s(samples: Sequence[Sample], main_pid: int, worker_pids: Collection[int]) -> float:
    """CPU seconds of the workers of a process, and of other children of it that ended in the window.

    Args:
        samples: in time order.
        main_pid: the process.
        worker_pids: its workers, the ended ones included.
    """
    if not samples:
        return 0.0
    first, latest, end = _processes(samples[0]), _latest(samples), _processes(samples[-1])
    living = [pid for pid in worker_pids if pid in end]
    ended = [pid for pid in worker_pids if pid in latest and pid not in end]
    sampled_s = sum(latest[pid]["cpu_s"] - _cpu_s(first, pid) for pid in ended)
    reaped_s = 0.0
    if main_pid in first and main_pid in latest:
        reaped_s = _children_s(latest[main_pid]) - _children_s(first[main_pid])
        reaped_s -= sum(_cpu_s(first, pid) for pid in ended)
    return float(sum(end[pid]["cpu_s"] - _cpu_s(first, pid) for pid in living) + max(sampled_s, reaped_s))


def _processes(sample: Sample) -> dict[int, Sample]:
    return {entry["pid"]: entry for entry in sample.get("processes") or ()}


def _latest(samples: Sequence[Sample]) -> dict[int, Sample]:
    """The last sample of each process."""
    return {pid: entry for sample in samples for pid, entry in _processes(sample).items()}


def _cpu_s(processes: Mapping[int, Sample], pid: int) -> float:
    return float(processes[pid]["cpu_s"]) if pid in processes else 0.0


def _children_s(entry: Sample) -> float:
    return float(entry.get("children_s") or 0.0)


def _with_children_s(entry: Sample) -> float:
    return float(entry["cpu_s"]) + _children_s(entry)
