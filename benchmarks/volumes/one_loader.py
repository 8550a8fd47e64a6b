#!/usr/bin/env python3
"""Take batches from one loader in a process of its own and print what they took, as JSON: started by run_loaders.py.

python one_loader.py LOADER FOLDER BATCHES SEED
python one_loader.py --write FORM FOLDER VOLUME_EDGE VOLUMES
"""

from __future__ import annotations

import json
import random
import resource
import sys
import time
from pathlib import Path

import numpy as np
from loaders import BATCH, FORMS, LOADERS


def main(name: str, folder: Path, batches: int, seed: int) -> None:
    """Print CPU ms and wall ms of each patch, and the largest resident memory."""
    import torch

    torch.set_num_threads(1)
    random.seed(seed)
    np.random.seed(seed)  # nnU-Net draws from the global generators
    torch.manual_seed(seed)
    loader = {one.name: one for one in LOADERS}[name].batches(folder)
    for _ in range(3):
        next(loader)
    begun, used = time.perf_counter(), time.process_time()
    for _ in range(batches):
        next(loader)
    patches = batches * BATCH
    cpu_ms, wall_ms = 1e3 * (time.process_time() - used), 1e3 * (time.perf_counter() - begun)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"cpu_ms": cpu_ms / patches, "wall_ms": wall_ms / patches, "memory": memory}))


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        form, where, edge, count = sys.argv[2:]
        FORMS[form](Path(where), int(edge), int(count))
    else:
        loader, where, wanted, number = sys.argv[1:]
        main(loader, Path(where), int(wanted), int(number))
