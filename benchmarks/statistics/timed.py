"""Runs a training script for some seconds, and writes when each step of its first optimizer ended.

Usage: python timed.py SCRIPT SECONDS OUTPUT
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

from torch.optim.optimizer import register_optimizer_step_post_hook


def main() -> None:
    """Ends the script, whatever it is doing, once its time is over."""
    script, seconds, output = sys.argv[1], float(sys.argv[2]), Path(sys.argv[3])
    ends: list[tuple[float, float]] = []
    first: list[int] = []
    owner = os.getpid()

    def stepped(optimizer: Any, *_: object) -> None:
        if os.getpid() != owner:
            return
        first[:] = first or [id(optimizer)]
        if id(optimizer) != first[0]:
            return
        ends.append((time.perf_counter(), time.process_time()))
        if ends[-1][0] - ends[0][0] > seconds:
            workers = multiprocessing.active_children()
            output.write_text(json.dumps({"ends": ends, "workers": len(workers)}))
            for worker in workers:
                worker.kill()
            os._exit(0)

    register_optimizer_step_post_hook(stepped)
    sys.argv = [script]
    sys.path.insert(0, str(Path(script).parent))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
