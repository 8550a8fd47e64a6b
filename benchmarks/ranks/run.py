#!/usr/bin/env python3
"""Reading and diagnosing the record of many ranks: seconds and memory, on a synthetic record.

    python benchmarks/ranks/run.py                     # 1,000 ranks of 1,000 steps: about 2 minutes, 170 MB of disk
    python benchmarks/ranks/run.py --ranks 64

The record is made with a builder of the tests; one rank in it is late. Goals: under 60 s, under 2 GiB.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LATE_S = 0.02
DIAGNOSE = """
import json, resource, sys, time
from pathlib import Path
from flatout.diagnosis import diagnose
from flatout.record import load_run
begin = time.perf_counter()
first = diagnose(load_run(Path(sys.argv[1]))).causes[0]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"s": time.perf_counter() - begin, "gib": peak / 2**20, "cause": first.id, "title": first.title}))
"""


def main() -> int:
    """Make, diagnose, print; exit code 1 when a goal is missed or another rank is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1000, metavar="N", help="(default: 1000)")
    parser.add_argument("--steps", type=int, default=1000, metavar="N", help="(default: 1000)")
    options = parser.parse_args()
    if options.ranks < 2 or options.steps < 20:
        parser.error("at least 2 ranks and 20 steps are needed")
    with tempfile.TemporaryDirectory() as name:
        begin = time.perf_counter()
        path = _record(Path(name), options.ranks, options.steps)
        print(f"made {options.ranks} ranks of {options.steps} steps in {time.perf_counter() - begin:.0f} s")
        done = subprocess.run([sys.executable, "-c", DIAGNOSE, str(path)], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    print(f"diagnosed in {found['s']:.2f} s with {found['gib']:.2f} GiB: {found['cause']}: {found['title']}")
    return 0 if found["s"] < 60 and found["gib"] < 2 and f"rank {options.ranks // 3} " in found["title"] else 1


def _record(folder: Path, ranks: int, steps: int) -> Path:
    """One rank waits for its data; the others wait for it in the exchange of gradients."""
    sys.path.insert(0, str(ROOT))
    from tests.record.synthetic import RunBuilder

    run = RunBuilder(folder)
    for rank in range(ranks):
        process = run.process(rank=rank, local_rank=rank % 8, world_size=ranks)
        loader = process.loader(num_workers=0, batch_size=4)
        process.iterate(loader)
        late = LATE_S if rank == ranks // 3 else 0.0
        for _ in range(steps):
            process.step(loader, wait_s=0.001 + late, forward_s=0.01, backward_s=0.04 - late, optimizer_s=0.001)
    return run.write()


if __name__ == "__main__":
    sys.exit(main())
