"""What ends a trial before it harms the machine."""

import os
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from flatout.trials.guards import LOOK_EVERY_S, Guard, Room, read_room

GIB = 1 << 30
PLENTY = Room(8 * GIB, 16 * GIB, 4 * GIB, 8 * GIB, 100 * GIB, ((GIB, 80 * GIB),))


@pytest.mark.parametrize(
    ("room", "word"),
    [
        (replace(PLENTY, memory_bytes=GIB // 2), "512 MiB of 16.0 GiB host memory left"),
        (replace(PLENTY, shm_bytes=GIB // 8), "128 MiB of 8.0 GiB of /dev/shm left"),
        (replace(PLENTY, disk_bytes=GIB // 4), "disk: 256 MiB left where the trial writes"),
        (replace(PLENTY, gpus=((79 * GIB, 80 * GIB),)), "GPU 0 is 99% full, and other processes use it too"),
    ],
)
def test_each_short_resource_ends_the_trial(tmp_path: Path, room: Room, word: str) -> None:
    rooms = iter([PLENTY, PLENTY, room])
    now_s = 0.0
    guard = Guard(tmp_path, lambda folder: next(rooms), clock=lambda: now_s)
    assert guard.look() is None
    now_s += LOOK_EVERY_S / 2
    assert guard.look() is None, "the machine is not read at each look"
    now_s += LOOK_EVERY_S
    assert word in (guard.look() or "")


def test_a_gpu_of_the_trial_s_own_may_be_full(tmp_path: Path) -> None:
    alone = replace(PLENTY, gpus=((0, 80 * GIB),))
    rooms = iter([alone, replace(alone, gpus=((80 * GIB, 80 * GIB),))])
    assert Guard(tmp_path, lambda folder: next(rooms)).look() is None


def test_the_room_is_that_of_this_machine(tmp_path: Path) -> None:
    room = read_room(tmp_path, None)
    total = psutil.virtual_memory().total
    assert room.memory_total is not None and 0 < room.memory_total <= total
    assert room.memory_bytes is not None and 0 < room.memory_bytes <= room.memory_total
    assert 0 < room.disk_bytes <= psutil.disk_usage(str(tmp_path)).total
    assert (room.shm_total is None) == (not os.path.isdir("/dev/shm"))
