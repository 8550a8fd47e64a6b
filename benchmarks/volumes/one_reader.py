#!/usr/bin/env python3
"""Read random patches in a process of its own and print what they took, as JSON: started by run.py.

python one_reader.py READER FOLDER VOLUME_EDGE PATCH_EDGE PATCHES COLD
python one_reader.py --write READER VOLUME.npy FOLDER
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
from readers import READERS


def main(name: str, folder: Path, size: int, edge: int, patches: int, cold: bool) -> None:
    """Print CPU ms and wall ms of each patch, and bytes read from the disk by each."""
    opened = {reader.name: reader for reader in READERS}[name].opened
    read = opened(folder)
    rng = np.random.default_rng(edge)  # the same places for every reader
    places = rng.integers(0, size - edge, (patches, 3)).tolist()
    files = [path for path in folder.rglob("*") if path.is_file()]
    for z, y, x in places[: max(patches // 5, 2)]:
        read(z, y, x, edge)
    cpu, wall, disk, check = [], [], [], 0
    for z, y, x in places:
        if cold:
            del read  # a page that is mapped stays in memory
            gc.collect()
            _drop(files)
            read = opened(folder)
        before = _bytes_from_disk()
        begun, used = time.perf_counter(), time.process_time()
        patch = read(z, y, x, edge)
        cpu.append(1e3 * (time.process_time() - used))
        wall.append(1e3 * (time.perf_counter() - begun))
        disk.append(_bytes_from_disk() - before)
        check += int(patch[::7, ::5, ::3].sum(dtype=np.int64))
        assert patch.shape == (edge,) * 3
    print(json.dumps({"cpu_ms": cpu, "wall_ms": wall, "disk": disk, "check": check}))


def _drop(files: list[Path]) -> None:
    """Take the files out of the page cache."""
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _bytes_from_disk() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("read_bytes")).split()[1])


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        reader, source, where = sys.argv[2:]
        {one.name: one for one in READERS}[reader].write(np.load(source), Path(where))
    else:
        reader, where, volume, patch, count, is_cold = sys.argv[1:]
        main(reader, Path(where), int(volume), int(patch), int(count), is_cold == "1")
