"""Memory that is left for copies of batches, and for a step of a larger one."""

# untested: only in trainings that flatout ends, which save no coverage

import json
import os

from .recorder import REC

MOST_BYTES = 1 << 30  # of all copies, and
MOST_SHARE = 0.125  # of the memory that is left
MORE = 1.3  # of what a step takes now: one of twice the batch takes this much more at the most
_TAIL_BYTES = 1 << 18  # of system.jsonl: holds its last line


def for_copies():
    """Bytes that all copies together may take."""
    return min(MOST_BYTES, int(MOST_SHARE * available_bytes()))


def lacking():
    """A sentence if a step of twice the batch may not fit; None: it fits. After at least one step."""
    import torch  # not where decoded samples are only counted

    if torch.cuda.is_initialized():
        peak = torch.cuda.max_memory_allocated()
        free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - peak
        needed = MORE * (peak - torch.cuda.memory_allocated())
    else:
        # What the process has held at the most is more than one step needs.
        free, needed = available_bytes(), _most_held_bytes()
    if free >= needed:
        return None
    return "%.2g GB of memory are left, and a larger batch may take %.2g GB more" % (free / 1e9, needed / 1e9)


def available_bytes():
    """Host memory that is left: as the kernel says, and as flatout last saw the control group's."""
    with open("/proc/meminfo") as file:
        found = [1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable")]
    try:
        with open(os.path.join(REC.run, "system.jsonl"), "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _TAIL_BYTES, 0))
            lines = file.read().splitlines()
    except (OSError, TypeError):  # nothing is recorded
        lines = []
    for line in reversed(lines[-2:]):  # the last one may be cut off
        try:
            found.append(int(json.loads(line)["memory"]["available"]))
            break
        except (ValueError, KeyError, TypeError):
            continue
    return min(found, default=0)


def _most_held_bytes():
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM"))
