#!/usr/bin/env python3
"""Run one loader in a process of its own and print what it took, as JSON: started by run.py.

python one_run.py LOADER FOLDER WORKERS SECONDS
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import psutil
from loaders import BATCH, LOADERS, Work, as_uint8, reference

WARM_UP_BATCHES = 4
MOST_BATCHES = 4000


def main(name: str, root: Path, workers: int, seconds: float) -> None:
    """Iterate for so many seconds after the first batches; prints images, wall and CPU seconds, memory, pixels."""
    warnings.simplefilter("ignore")
    work = _work(root, workers)
    me = psutil.Process()
    batches = LOADERS[name].batches(work)
    begun = time.perf_counter()
    first = next(batches)
    start_up = time.perf_counter() - begun
    for _ in range(WARM_UP_BATCHES - 1):
        next(batches)
    memory = _Memory(me)
    begin, cpu = time.perf_counter(), _cpu_s(me)
    count = 0
    for _ in batches:
        count += 1
        if time.perf_counter() - begin > seconds:
            break
    wall, cpu = time.perf_counter() - begin, _cpu_s(me) - cpu
    made = {
        "images": count * BATCH,
        "wall_s": wall,
        "cpu_s": cpu,
        "start_up_s": start_up,
        "memory_mib": memory.stop() / 2**20,
        "difference": _difference(first, work) if first is not None else None,
    }
    print(json.dumps(made), flush=True)
    # Loaders with processes of their own may take long to end.
    for child in me.children(recursive=True):
        child.kill()
    sys.stdout.flush()
    os._exit(0)


def _work(root: Path, workers: int) -> Work:
    from PIL import Image

    from flatout.loader.crops import RandomCrop, generator
    from flatout.loader.order import Order

    files = sorted(str(path) for path in (root / "images").glob("*.jpg"))
    repeats = -(-MOST_BATCHES * BATCH // len(files))
    boxes = []
    for index, name in enumerate(files):
        with Image.open(name) as image:
            draw = generator(0, 0, index)
            draw.random()  # the flip
            boxes.append(tuple(int(edge) for edge in RandomCrop(draw).box(*image.size)))
    count = repeats * len(files)
    order = Order(count=count, batch_size=BATCH, shuffle=True, drop_last=True).places(0)
    return Work(root, files, [place % len(files) for place in order], boxes, workers)


def _cpu_s(process: psutil.Process) -> float:
    own = process.cpu_times()
    total = own.user + own.system + own.children_user + own.children_system  # the last two: of processes that ended
    for one in process.children(recursive=True):
        try:
            times = one.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


class _Memory:
    """Watches the proportional set size of the process tree; the most is kept."""

    def __init__(self, process: psutil.Process) -> None:
        self._process, self._most = process, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.7):
            total = 0
            for one in (self._process, *self._process.children(recursive=True)):
                try:
                    total += one.memory_full_info().pss
                except psutil.Error:
                    continue
            self._most = max(self._most, total)

    def stop(self) -> int:
        self._over.set()
        self._thread.join()
        return self._most


def _difference(batch: object, work: Work) -> float:
    """Mean absolute difference to Pillow's pixels, of the images of a batch in whatever order they came."""
    found = as_uint8(batch).astype(np.int16)
    small = found[:, ::16, ::16].reshape(len(found), -1)
    wanted = [reference(Path(name).read_bytes(), box) for name, box in zip(work.files, work.boxes, strict=True)]
    stack = np.stack(wanted).astype(np.int16)
    coarse = stack[:, ::16, ::16].reshape(len(stack), -1)
    each = []
    for image, key in zip(found, small, strict=True):
        nearest = int(np.abs(coarse - key).mean(1).argmin())
        each.append(float(np.abs(image - stack[nearest]).mean()))
    return float(np.mean(each))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
