"""What ends a trial before it harms the machine."""

from dataclasses import replace
from pathlib import Path

import pytest

from flatout.trials.guards import Guard, Room

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
    guard = Guard(tmp_path, lambda folder: next(rooms))
    assert guard.look() is None
    guard._looked_s = 0.0
    assert word in (guard.look() or "")


def test_a_gpu_of_the_trial_s_own_may_be_full(tmp_path: Path) -> None:
    alone = replace(PLENTY, gpus=((0, 80 * GIB),))
    rooms = iter([alone, replace(alone, gpus=((80 * GIB, 80 * GIB),))])
    assert Guard(tmp_path, lambda folder: next(rooms)).look() is None


def test_this_machine_has_room(tmp_path: Path) -> None:
    guard = Guard(tmp_path)
    assert guard.look() is None
    guard.close()
