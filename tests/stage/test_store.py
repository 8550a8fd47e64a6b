"""Object stores through obstore, on its own store in memory."""

from collections.abc import Iterator
from typing import Any

import pytest

from flatout.errors import UsageError
from flatout.stage import copying
from flatout.stage.sources import store as store_module
from flatout.stage.sources.base import ObjectInfo, StoreOptions
from flatout.stage.sources.failures import Failure
from flatout.stage.sources.store import StoreSource

obstore = pytest.importorskip("obstore")
LARGE = bytes(range(256)) * 64


@pytest.fixture
def source() -> StoreSource:
    source = StoreSource("memory://", StoreOptions())
    for key, content in {"a/1.jpg": b"one", "a/2.jpg": b"two", "b/3.jpg": b"three", "empty": b"", "b": b""}.items():
        obstore.put(source._store, key, content)
    return source


def listed(source: StoreSource, prefix: str = "") -> dict[str, int]:
    return {found.key: found.size for found in source.objects(prefix)}


def test_everything_is_listed_but_markers_of_folders(source: StoreSource) -> None:
    assert listed(source) == {"a/1.jpg": 3, "a/2.jpg": 3, "b/3.jpg": 5, "empty": 0}
    assert listed(source, "a/") == {"a/1.jpg": 3, "a/2.jpg": 3}
    assert source.folders() == ["a", "b"] and source.folders("a/") == []


def test_a_listing_of_several_pages_is_whole(source: StoreSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "PAGE", 1)
    assert len(listed(source)) == 4


def test_objects_and_ranges_of_them_are_read(source: StoreSource, monkeypatch: pytest.MonkeyPatch) -> None:
    (first, *_) = source.objects("b/")
    buffer = memoryview(bytearray(64))
    assert b"".join(map(bytes, source.stream(first, buffer))) == b"three"
    assert b"".join(map(bytes, source.stream(first, buffer, 1, 3))) == b"hre"
    obstore.put(source._store, "large", LARGE)
    monkeypatch.setattr(store_module, "LIBRARY_BYTES", 1000)
    (large,) = (found for found in source.objects() if found.key == "large")
    assert b"".join(map(bytes, source.stream(large, buffer))) == LARGE


def test_an_object_that_is_gone_or_was_changed_is_a_failure_of_that_kind(source: StoreSource) -> None:
    (first, *_) = source.objects("a/")
    buffer = memoryview(bytearray(64))
    obstore.put(source._store, first.key, b"new")
    with pytest.raises(Failure) as changed:
        list(source.stream(first, buffer, 0, 2))
    assert changed.value.kind == "changed"
    obstore.delete(source._store, first.key)
    with pytest.raises(Failure) as gone:
        list(source.stream(first, buffer))
    assert gone.value.kind == "gone" and first.key in str(gone.value)


def test_an_address_with_a_password_is_refused_without_showing_it() -> None:
    with pytest.raises(UsageError, match="credentials do not belong into an address") as refused:
        StoreSource("gs://me:secret@bucket", StoreOptions())
    assert "secret" not in str(refused.value)


def test_a_large_object_comes_in_parts_in_order(source: StoreSource, monkeypatch: pytest.MonkeyPatch) -> None:
    obstore.put(source._store, "large", LARGE)
    (large,) = (found for found in source.objects() if found.key == "large")
    monkeypatch.setattr(copying, "STREAMED_BYTES", 1000)
    monkeypatch.setattr(copying, "IN_ORDER_BYTES", 1000)
    asked: list[tuple[int, int | None]] = []

    class Ranged(StoreSource):
        def has_ranges(self, obj: ObjectInfo) -> bool:
            return True

        def stream(self, obj: Any, buffer: Any, start: int = 0, length: int | None = None) -> Iterator[memoryview]:
            asked.append((start, length))
            return super().stream(obj, buffer, start, length)

    source.__class__ = Ranged
    assert b"".join(map(bytes, copying._pieces(large, source))) == LARGE
    assert sorted(asked) == [(start, min(1000, len(LARGE) - start)) for start in range(0, len(LARGE), 1000)]
