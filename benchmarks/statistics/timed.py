"""Runs a training script several times for some seconds, and writes when each step of its first optimizer ended.

Each run is a process of its own; torch is imported once, before them.

Usage: python timed.py SECONDS RUNS OUTPUT SCRIPT [ARGUMENTS]
"""

from __future__ import annotations

import json
import multiprocessing
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


def main() -> None:
    """One run after the other, as long as they succeed."""
    seconds, runs, output, script = float(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
    # The first optimizer imports much of torch: once is enough.
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    for number in range(runs):
        child = os.fork()
        if child == 0:
            run(script, seconds, output.with_suffix(f".{number}"))
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
            raise SystemExit("the script failed, or ended before its time")


def run(script: Path, seconds: float, output: Path) -> None:
    """Train, and end the script, whatever it is doing, once its time is over."""
    ends_s: list[float] = []
    first: list[int] = []
    owner = os.getpid()

    def stepped(optimizer: Any, *_: object) -> None:
        if os.getpid() != owner:
            return
        first[:] = first or [id(optimizer)]
        if id(optimizer) != first[0]:
            return
        ends_s.append(time.perf_counter())
        if ends_s[-1] - ends_s[0] > seconds:
            output.write_text(json.dumps(ends_s))
            for worker in multiprocessing.active_children():
                worker.kill()
            os._exit(0)

    register_optimizer_step_post_hook(stepped)
    sys.argv = sys.argv[4:]
    sys.path.insert(0, str(script.parent))
    runpy.run_path(str(script), run_name="__main__")
    os._exit(1)


if __name__ == "__main__":
    main()
