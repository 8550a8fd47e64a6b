"""Threads that copy what is listed: everything once, in bounded memory, and every end is an end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from flatout.stage import transfer_pool
from flatout.stage.concurrency import ConcurrencyLimit
from flatout.stage.sources.base import ObjectInfo
from flatout.stage.transfer_pool import QUEUED, TransferPool


def entries(count: int, pause_s: float = 0.0) -> Iterator[ObjectInfo]:
    for number in range(count):
        time.sleep(pause_s)
        yield ObjectInfo(str(number), 1, "1")


@pytest.mark.parametrize(("count", "pause_s"), [(0, 0.0), (1, 0.0), (20_000, 0.0), (40, 0.02)])
def test_every_entry_is_brought_once(count: int, pause_s: float) -> None:
    brought: list[str] = []
    TransferPool(lambda entry: brought.append(entry.key), ConcurrencyLimit(8, fixed=True)).run(
        entries(count, pause_s), lambda: len(brought)
    )
    assert sorted(brought, key=int) == [str(number) for number in range(count)]


def test_the_listing_waits_for_the_copying() -> None:
    listed = 0
    ahead: list[int] = []
    brought: list[str] = []

    def listing() -> Iterator[ObjectInfo]:
        nonlocal listed
        for entry in entries(4 * QUEUED):
            listed += 1
            yield entry

    def bring(entry: ObjectInfo) -> None:
        brought.append(entry.key)
        ahead.append(listed - len(brought))

    TransferPool(bring, ConcurrencyLimit(4, fixed=True)).run(listing(), lambda: len(brought))
    assert len(brought) == 4 * QUEUED and max(ahead) <= QUEUED + 1


def test_no_more_than_the_width_are_brought_at_once() -> None:
    width, now, most = ConcurrencyLimit(32), 0, 0
    width.now = 3
    lock = threading.Lock()

    def bring(entry: ObjectInfo) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.001)
        with lock:
            now -= 1

    TransferPool(bring, width).run(entries(100), lambda: 0)
    assert most == 3


@pytest.mark.timeout(30)
@pytest.mark.parametrize("where", ["listing at once", "listing later", "bring", "watch"])
def test_what_goes_wrong_anywhere_ends_it_and_is_raised(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer_pool, "LOOK_S", 0.01)

    def listing() -> Iterator[ObjectInfo]:
        if where == "listing at once":
            raise OSError("listing")
        yield from entries(5 * QUEUED if where != "listing later" else 10)
        if where == "listing later":
            raise OSError("listing")

    def bring(entry: ObjectInfo) -> None:
        time.sleep(0.001)
        if where == "bring" and entry.key == "7":
            raise OSError("bring")

    def watch() -> int:
        if where == "watch":
            raise OSError("watch")
        return 0

    before = threading.active_count()
    with pytest.raises(OSError, match=where.partition(" ")[0]):
        TransferPool(bring, ConcurrencyLimit(4, fixed=True)).run(listing(), watch)
    assert threading.active_count() == before
