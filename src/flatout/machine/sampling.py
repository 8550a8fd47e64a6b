"""``python -m flatout.machine.sampling FILE PID``: samples a process tree until standard input closes.

For ``flatout.watch``: a separate process does not compete for the training's interpreter lock.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from flatout.machine.sampler import SystemSampler


def main(path: str, pid: str) -> None:
    """Sample until a line comes on standard input, or its other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the training
    with SystemSampler(Path(path), int(pid)):
        sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
