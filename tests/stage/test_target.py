"""Files that get their name when they are whole, on file systems with and without files that have none."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flatout.stage.buffers import BUFFER_BYTES, thread_buffer
from flatout.stage.failures import Failure
from flatout.stage.large_files import PART_BYTES
from flatout.stage.target import Target, checksum_of, temporary_folder


@pytest.fixture(params=["nameless", "partial"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    (tmp_path / "dest").mkdir()
    made = Target(tmp_path / "dest")
    if request.param == "partial":
        made._nameless = False
    return made


def names(target: Target) -> list[str]:
    return sorted(str(path.relative_to(target.destination)) for path in target.destination.rglob("*") if path.is_file())


def test_a_file_is_whole_or_not_there(target: Target) -> None:
    def parts() -> Iterator[bytes]:
        yield b"one"
        assert names(target) == []
        yield b"two"

    done = target.write("a/b.bin", parts(), "v1")
    assert (target.destination / "a/b.bin").read_bytes() == b"onetwo" and done.size == 6
    assert checksum_of(target.path("a/b.bin"), done.checksum) == done.checksum
    assert done.mtime_ns == target.path("a/b.bin").stat().st_mtime_ns

    def failing() -> Iterator[bytes]:
        yield b"half"
        raise Failure("again", "cut")

    for key in ("a/b.bin", "a/new.bin"):
        with pytest.raises(Failure, match="cut"):
            target.write(key, failing(), "v2")
    assert names(target) == ["a/b.bin"] and target.path("a/b.bin").read_bytes() == b"onetwo"
    assert list(temporary_folder(target.destination).iterdir()) == []


def test_a_file_that_is_there_is_replaced_and_readers_keep_the_old_one(target: Target) -> None:
    target.write("a.bin", [b"old"], "v1")
    with target.path("a.bin").open("rb") as reader:
        target.write("a.bin", [b"new!"], "v2")
        assert reader.read() == b"old"
    assert target.path("a.bin").read_bytes() == b"new!"
    assert list(temporary_folder(target.destination).iterdir()) == []


def test_a_folder_in_the_way_is_said(target: Target) -> None:
    target.write("a/b.bin", [b"x"], "v1")
    with pytest.raises(Failure, match="a folder of that name is in the way"):
        target.write("a", [b"x"], "v1")


def test_large_files_come_in_parts_in_any_order(target: Target) -> None:
    data = random.Random(0).randbytes(2 * PART_BYTES + 12_345)

    def stream(start: int, length: int) -> Iterator[memoryview]:
        yield memoryview(data)[start : start + length // 3]  # neither a multiple of a block nor at its border
        for at in range(start + length // 3, start + length, BUFFER_BYTES):
            part = data[at : min(at + BUFFER_BYTES, start + length)]
            thread_buffer()[: len(part)] = part
            yield thread_buffer()[: len(part)]

    done = target.write_parts("large.bin", stream, "v1", len(data))
    assert target.path("large.bin").read_bytes() == data
    assert checksum_of(target.path("large.bin"), done.checksum) == done.checksum
    with target.path("large.bin").open("r+b") as file:
        file.seek(PART_BYTES + 5)
        file.write(b"\0")
    assert checksum_of(target.path("large.bin"), done.checksum) != done.checksum
    with pytest.raises(Failure, match="bytes came where"):
        target.write_parts("short.bin", lambda start, length: iter([memoryview(data)[1:length]]), "v1", len(data))
    assert names(target) == ["large.bin"]


def test_a_file_system_that_cannot_name_such_files_is_written_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target(tmp_path)

    def link(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, "not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(Failure) as refused:
        target.write("a.bin", [b"x"], "v1")
    assert refused.value.kind == "again"
    target.write("a.bin", [b"x"], "v1")
    assert names(target) == ["a.bin"]
