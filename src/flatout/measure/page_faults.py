"""Page faults of the training: memory that is taken from the kernel anew, and zeroed by it, in every step."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Sample = dict[str, Any]

# Most that a fault of ordinary memory takes: 2.1 us were measured on a virtual machine for 4 KiB, 0.25 to 1 us are
# usual on others; larger pages take longer to zero. More than that in the kernel is something else.
MOST_S_PER_BYTE = 1e-9


@dataclass(frozen=True)
class PageFaults:
    """Faults that need no storage, of one process or of several together.

    Attributes:
        per_s: faults a second.
        system_cores: cores used in the kernel.
        cores: cores used.
    """

    per_s: float
    system_cores: float
    cores: float

    def part(self, others_per_s: float = 0.0) -> float:
        """The part of the CPU time that faults take, 0..1.

        Time in the kernel is divided among the faults, up to what one can take.

        Args:
            others_per_s: pages a second that lie in shared memory, which an allocator does not keep.
        """
        if self.per_s <= 0 or self.cores <= 0:
            return 0.0
        each_s = min(self.system_cores / self.per_s, MOST_S_PER_BYTE * mmap.PAGESIZE)
        return min(max(self.per_s - others_per_s, 0.0) * each_s / self.cores, 1.0)


def count_faults(samples: Sequence[Sample], pids: Sequence[int]) -> PageFaults | None:
    """Faults of these processes between the first and the last sample of each.

    Args:
        samples: of the machine, in time order.
        pids: of the processes.

    Returns:
        None where none of them was sampled twice, or the record holds no faults.
    """
    found = [one for pid in pids if (one := _of_process(samples, pid)) is not None]
    if not found:
        return None
    return PageFaults(
        sum(one.per_s for one in found), sum(one.system_cores for one in found), sum(one.cores for one in found)
    )


def _of_process(samples: Sequence[Sample], pid: int) -> PageFaults | None:
    seen = [
        (sample["t"] / 1e9, entry)
        for sample in samples
        for entry in sample.get("processes") or ()
        if entry["pid"] == pid and entry.get("minflt") is not None and entry.get("system_s") is not None
    ]
    if len(seen) < 2 or seen[-1][0] <= seen[0][0]:
        return None
    (begin_s, first), (end_s, last) = seen[0], seen[-1]

    def rate(field: str) -> float:
        return float(max(last[field] - first[field], 0) / (end_s - begin_s))

    return PageFaults(rate("minflt"), rate("system_s"), rate("cpu_s"))
