"""The transfer pool: every object once, in bounded memory, and every error ends it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from flatout.stage import transfer_pool
from flatout.stage.concurrency import ConcurrencyLimit
from flatout.stage.sources.base import ObjectInfo
from flatout.stage.transfer_pool import QUEUED, TransferPool


def objects(count: int, pause_s: float = 0.0) -> Iterator[ObjectInfo]:
    for number in range(count):
        time.sleep(pause_s)
        yield ObjectInfo(str(number), 1, "1")


@pytest.mark.parametrize(("count", "pause_s"), [(0, 0.0), (1, 0.0), (20_000, 0.0), (40, 0.02)])
def test_every_object_is_transferred_once(count: int, pause_s: float) -> None:
    transferred: list[str] = []
    TransferPool(lambda obj: transferred.append(obj.key), ConcurrencyLimit(8, fixed=True)).run(
        objects(count, pause_s), lambda: len(transferred)
    )
    assert sorted(transferred, key=int) == [str(number) for number in range(count)]


def test_the_listing_waits_for_the_copying() -> None:
    listed = 0
    ahead: list[int] = []
    transferred: list[str] = []

    def listing() -> Iterator[ObjectInfo]:
        nonlocal listed
        for obj in objects(4 * QUEUED):
            listed += 1
            yield obj

    def transfer(obj: ObjectInfo) -> None:
        transferred.append(obj.key)
        ahead.append(listed - len(transferred))

    TransferPool(transfer, ConcurrencyLimit(4, fixed=True)).run(listing(), lambda: len(transferred))
    assert len(transferred) == 4 * QUEUED and max(ahead) <= QUEUED + 4


def test_no_more_than_the_limit_are_transferred_at_once() -> None:
    limit, now, most = ConcurrencyLimit(32), 0, 0
    limit.current = 3
    lock, all_three = threading.Lock(), threading.Barrier(3)

    def transfer(obj: ObjectInfo) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        if int(obj.key) < 3:  # the first ones are in flight together, however late a thread starts
            all_three.wait(60)
        time.sleep(0.001)
        with lock:
            now -= 1

    TransferPool(transfer, limit).run(objects(100), lambda: 0)
    assert most == 3


@pytest.mark.parametrize("where", ["listing at once", "listing later", "transfer", "watch"])
def test_what_goes_wrong_anywhere_ends_it_and_is_raised(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer_pool, "UPDATE_S", 0.01)

    def listing() -> Iterator[ObjectInfo]:
        if where == "listing at once":
            raise OSError("listing")
        yield from objects(5 * QUEUED if where != "listing later" else 10)
        if where == "listing later":
            raise OSError("listing")

    def transfer(obj: ObjectInfo) -> None:
        time.sleep(0.001)
        if where == "transfer" and obj.key == "7":
            raise OSError("transfer")

    def watch() -> int:
        if where == "watch":
            raise OSError("watch")
        return 0

    with pytest.raises(OSError, match=where.partition(" ")[0]):
        TransferPool(transfer, ConcurrencyLimit(4, fixed=True)).run(listing(), watch)
    left = [
        thread.name for thread in threading.enumerate() if thread.name.startswith(("flatout-list", "flatout-stage"))
    ]
    assert left == []


def test_no_thread_is_started_once_the_end_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    looks = threading.Semaphore(0)

    class Counted(threading.Thread):
        def start(self) -> None:
            started.append(self.name)
            super().start()

    monkeypatch.setattr(threading, "Thread", Counted)
    monkeypatch.setattr(transfer_pool, "UPDATE_S", 0.01)

    def transfer(obj: ObjectInfo) -> None:
        for _ in range(3 if obj.key == "0" else 0):
            assert looks.acquire(timeout=60)

    def watch() -> int:
        if pool._ended:
            looks.release()
        return 0

    # One transfer goes on while the pool looks three times after the other threads for the end that they have found.
    pool = TransferPool(transfer, ConcurrencyLimit(4, fixed=True))
    pool.run(objects(20), watch)
    # The end may be reached before all four threads are up, so fewer is right, and one twice is not.
    assert "flatout-list" in started and "flatout-stage-0" in started
    assert len(started) == len(set(started)) <= 1 + 4
