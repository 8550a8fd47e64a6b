"""Files that get their name when they are whole, on file systems with and without files that have none."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flatout.stage.checksums import PART_BYTES, checksum_of
from flatout.stage.destination.state import State
from flatout.stage.destination.target import Target
from flatout.stage.sources.buffers import BUFFER_BYTES, thread_buffer
from flatout.stage.sources.failures import Failure


@pytest.fixture(params=["nameless", "partial"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    (tmp_path / "dest").mkdir()
    state = State(tmp_path / "dest")
    made = Target(tmp_path / "dest", state)
    if request.param == "partial":
        made._nameless = False
    yield made
    state.close()


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
    assert list(target.partial.iterdir()) == []


def test_a_file_that_staging_made_is_replaced_and_readers_keep_the_old_one(target: Target) -> None:
    assert target._state is not None
    target._state.add(target.write("a.bin", [b"old"], "v1"), 1)
    with target.path("a.bin").open("rb") as reader:
        target.write("a.bin", [b"new!"], "v2")
        assert reader.read() == b"old"
    assert target.path("a.bin").read_bytes() == b"new!"
    assert list(target.partial.iterdir()) == []


def test_a_file_that_staging_did_not_make_or_no_longer_knows_is_kept(target: Target) -> None:
    assert target._state is not None
    target.path("user.bin").write_bytes(b"mine")
    target._state.add(target.write("edited.bin", [b"old"], "v1"), 1)
    target.path("edited.bin").write_bytes(b"new")
    (target.destination / "elsewhere").write_bytes(b"far")
    target.path("link.bin").symlink_to("elsewhere")
    for key, here in (("user.bin", b"mine"), ("edited.bin", b"new"), ("link.bin", b"far")):
        with pytest.raises(Failure, match="it is kept; --overwrite replaces it"):
            target.write(key, [b"from the source"], "v2")
        assert target.path(key).read_bytes() == here
    target._overwrite = True
    target.write("link.bin", [b"from the source"], "v2")
    assert target.path("link.bin").read_bytes() == b"from the source" and not target.path("link.bin").is_symlink()
    assert (target.destination / "elsewhere").read_bytes() == b"far"


def test_a_file_of_the_same_bytes_is_kept_with_its_time(target: Target) -> None:
    target.path("a.bin").write_bytes(b"same")
    os.utime(target.path("a.bin"), ns=(1_000, 1_000))
    inode = target.path("a.bin").stat().st_ino
    done = target.write("a.bin", [b"same"], "v1")
    assert (done.mtime_ns, target.path("a.bin").stat().st_ino) == (1_000, inode)
    assert list(target.partial.iterdir()) == []


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


def test_a_file_that_is_put_there_while_the_old_one_is_checked_is_not_replaced(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert target._state is not None
    target._state.add(target.write("a.bin", [b"old"], "v1"), 1)
    (tmp_path / "mine").write_bytes(b"precious")

    def checked(path: Path | str, like: str) -> str:
        found = checksum_of(path, like)
        (tmp_path / "mine").rename(target.path("a.bin"))
        return found

    monkeypatch.setattr("flatout.stage.destination.target.checksum_of", checked)
    with pytest.raises(Failure, match="changed here just now"):
        target.write("a.bin", [b"new"], "v2")
    assert target.path("a.bin").read_bytes() == b"precious" and list(target.partial.iterdir()) == []


def test_a_mount_point_in_the_way_fails_that_file_alone(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    assert target._state is not None
    target._state.add(target.write("a.bin", [b"old"], "v1"), 1)

    def replace(*_: Any) -> None:
        raise OSError(errno.EBUSY, "busy")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", replace)
        with pytest.raises(Failure, match=r"a.bin: a mount point is there.*unmount"):
            target.write("a.bin", [b"new"], "v2")
    assert target.path("a.bin").read_bytes() == b"old" and list(target.partial.iterdir()) == []


def test_a_file_larger_than_the_room_fails_by_itself(target: Target) -> None:
    with pytest.raises(Failure, match=r"huge\.bin: has 1,000,000,000,000,000 bytes"):
        target.write("huge.bin", [b"x"], "v1", 10**15)
    with pytest.raises(Failure, match="are free"):
        target.write_parts("huge.bin", lambda start, length: iter([]), "v1", 10**15)
    assert names(target) == []
