"""Staging from a folder: what is complete stays, what changed comes again, what cannot be is said."""

from __future__ import annotations

import csv
import os
import queue
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from flatout import cli
from flatout.errors import DiskFull, StagingFailed, UsageError
from flatout.report.staging import summary_lines
from flatout.stage.destination import space, target
from flatout.stage.destination.checking import check
from flatout.stage.destination.lock import destination_lock
from flatout.stage.destination.own_folder import remove_partial
from flatout.stage.destination.safe_paths import state_folder
from flatout.stage.outlook import look_ahead
from flatout.stage.selection import Selection
from flatout.stage.sources.base import ObjectInfo
from flatout.stage.sources.failures import Failure, Kind
from flatout.stage.sources.folder import FolderSource
from flatout.stage.staging import stage
from flatout.stage.transfer import Options


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for number in range(60):
        path = tmp_path / "source" / f"c{number % 3}" / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(100 + number))
    return tmp_path / "source"


def same(source: Path, destination: Path) -> bool:
    files = [path.relative_to(source) for path in source.rglob("*") if path.is_file()]
    return all((destination / path).read_bytes() == (source / path).read_bytes() for path in files)


def test_everything_arrives_and_the_manifest_says_what(source: Path, tmp_path: Path) -> None:
    destination = tmp_path / "dest"
    summary = stage(FolderSource(source), destination, Selection())
    assert (summary.copied, summary.kept, summary.n_failed, summary.total_files) == (60, 0, 0, 60)
    assert same(source, destination)
    with open(summary.manifest, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["path", "size", "version", "checksum", "verified"]
    assert len(rows) == 60 and sum(int(row["size"]) for row in rows) == summary.total_bytes
    assert {row["path"] for row in rows} == {str(path.relative_to(source)) for path in source.rglob("*.bin")}
    assert check(destination).changed == ()
    assert list((state_folder(destination) / "partial").iterdir()) == []


def test_a_second_staging_copies_only_what_changed_or_is_missing(source: Path, tmp_path: Path) -> None:
    destination = tmp_path / "dest"
    stage(FolderSource(source), destination, Selection())
    (source / "c0/0.bin").write_bytes(b"new content")
    (destination / "c2/2.bin").unlink()
    summary = stage(FolderSource(source), destination, Selection())
    assert (summary.copied, summary.kept) == (2, 58)
    assert same(source, destination)


def test_what_the_user_wrote_at_the_destination_is_kept_until_told_otherwise(source: Path, tmp_path: Path) -> None:
    destination = tmp_path / "dest"
    (destination / "c0").mkdir(parents=True)
    (destination / "c0/0.bin").write_bytes(b"mine, before the first staging")
    assert stage(FolderSource(source), destination, Selection()).n_failed == 1
    (destination / "c1/1.bin").write_bytes(b"edited here")
    (source / "c1/4.bin").write_bytes(b"newer at the source")
    (destination / "c1/4.bin").write_bytes(b"edited here, too")
    summary = stage(FolderSource(source), destination, Selection())
    assert (summary.copied, summary.n_failed) == (0, 3)
    assert any("c1/1.bin: was changed here since it was staged" in text for text in summary.failed_examples)
    assert (destination / "c0/0.bin").read_bytes() == b"mine, before the first staging"
    assert (destination / "c1/1.bin").read_bytes() == b"edited here"
    assert (destination / "c1/4.bin").read_bytes() == b"edited here, too"
    assert stage(FolderSource(source), destination, Selection(), Options(overwrite=True)).copied == 3
    assert same(source, destination)


def test_right_files_that_lie_there_already_are_taken_over(source: Path, tmp_path: Path) -> None:
    destination = tmp_path / "dest"
    shutil.copytree(source, destination)
    before = (destination / "c0/0.bin").stat()
    summary = stage(FolderSource(source), destination, Selection())
    assert (summary.n_failed, summary.total_files) == (0, 60)
    assert (destination / "c0/0.bin").stat().st_ino == before.st_ino
    os.utime(destination / "c0/0.bin")  # another time, the same bytes: known by the checksum that was noted
    assert stage(FolderSource(source), destination, Selection()).adopted == 1


def test_times_and_permissions_are_kept(source: Path, tmp_path: Path) -> None:
    (source / "c0/0.bin").chmod(0o750)
    (source / "c1/1.bin").chmod(0o600)
    os.utime(source / "c0/0.bin", ns=(10**18, 10**18))
    stage(FolderSource(source), tmp_path / "dest", Selection())
    there = (tmp_path / "dest/c0/0.bin").stat()
    assert (there.st_mode & 0o777, there.st_mtime_ns) == (0o750, 10**18)
    assert (tmp_path / "dest/c1/1.bin").stat().st_mode & 0o777 == 0o600


def test_what_the_source_has_no_more_is_named_and_pruned_when_asked(source: Path, tmp_path: Path) -> None:
    destination = tmp_path / "dest"
    stage(FolderSource(source), destination, Selection())
    (source / "c0/0.bin").unlink()
    told = stage(FolderSource(source), destination, Selection())
    assert (told.n_gone, told.gone_examples, (destination / "c0/0.bin").exists()) == (1, ("c0/0.bin",), True)
    part = stage(FolderSource(source), destination, Selection(include=("c1/*",)))
    assert part.n_gone == 0  # left out by choice is not gone
    pruned = stage(FolderSource(source), destination, Selection(), Options(prune=True))
    assert (pruned.n_gone, (destination / "c0/0.bin").exists(), pruned.total_files) == (1, False, 59)


def test_a_check_finds_a_flipped_bit_and_a_missing_file_and_staging_repairs_them(source: Path, tmp_path: Path) -> None:
    destination = tmp_path / "dest"
    stage(FolderSource(source), destination, Selection())
    broken = destination / "c1/4.bin"
    stat = broken.stat()
    data = bytearray(broken.read_bytes())
    data[50] ^= 1
    broken.write_bytes(data)
    os.utime(broken, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    (destination / "c2/5.bin").unlink()
    found = check(destination)
    assert (found.changed, found.missing) == (("c1/4.bin",), ("c2/5.bin",))
    again = stage(FolderSource(source), destination, Selection())
    assert (again.copied, again.n_failed) == (1, 1)  # the other bytes may be the user's
    assert stage(FolderSource(source), destination, Selection(), Options(overwrite=True)).copied == 1
    assert same(source, destination)


def test_two_stagings_to_one_place_do_not_mix(source: Path, tmp_path: Path) -> None:
    destination = tmp_path / "dest"
    destination.mkdir()
    said: queue.Queue[str] = queue.Queue()
    with destination_lock(destination, wait=False, report=said.put):
        with pytest.raises(UsageError, match="another staging goes on there"):
            stage(FolderSource(source), destination, Selection())
        waiting = threading.Thread(
            target=stage, args=(FolderSource(source), destination, Selection(), Options(wait=True)),
            kwargs={"report": said.put},
        )  # fmt: skip
        waiting.start()
        first = said.get(timeout=60)
        assert not (destination / "c0").exists()
    waiting.join()
    assert same(source, destination) and "waiting for the staging of process" in first


def test_a_folder_that_holds_another_source_is_refused(source: Path, tmp_path: Path) -> None:
    stage(FolderSource(source), tmp_path / "dest", Selection())
    with pytest.raises(UsageError, match="holds what was staged from"):
        stage(FolderSource(source / "c0"), tmp_path / "dest", Selection())


def test_a_disk_without_room_is_said_before_anything_is_copied(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(space.DiskFull, match="more are needed"):
        stage(FolderSource(source), tmp_path / "dest", Selection(), Options(min_free=1 << 62))
    assert look_ahead(FolderSource(source), tmp_path / "other", Selection(), min_free=1 << 62).fits is False
    assert not (tmp_path / "other").exists()


def test_more_files_than_fit_are_refused_although_each_would_fit(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    monkeypatch.setattr("flatout.stage.staging.free_bytes", lambda folder, least: total - 1)
    with pytest.raises(DiskFull, match=r"more are needed, .* may be written there"):
        stage(FolderSource(source), tmp_path / "dest", Selection())
    monkeypatch.setattr("flatout.stage.staging.free_bytes", lambda folder, least: total)
    assert stage(FolderSource(source), tmp_path / "dest", Selection()).total_files == 60
    # What is complete needs no more room.
    monkeypatch.setattr("flatout.stage.staging.free_bytes", lambda folder, least: 0)
    assert stage(FolderSource(source), tmp_path / "dest", Selection()).kept == 60


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["SET", "d", "--shard-size", "0"], "--shard-size"),
        (["SET", "d", "--shard-size", "1GiB"], "--tar"),
        (["SET", "d", "--min-free", "1e400GB"], "too large"),
        (["FILE", "d"], "is a file, not a folder"),
        (["SET", "FILE"], "is a file, not a folder: give a folder as DEST"),
        (["SET", "FILE", "--pack"], "is a file, not a folder: give a folder as DEST"),
        (["SET", "d", "--classes-from", "/"], "--classes-from /: is a folder"),
    ],
)
def test_an_argument_of_the_wrong_kind_is_one_line(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    arguments: list[str], said: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("mine")
    (source / "c0" / "picture.jpg").write_bytes(b"picture")
    named = {"SET": str(source), "FILE": "train.py"}
    assert cli.main(["stage", *(named.get(word, word) for word in arguments)]) == 2
    told = capsys.readouterr().err
    assert said in told and len(told.splitlines()) == 1 and "Errno" not in told
    assert not (tmp_path / "d").exists()


def test_a_link_of_the_user_at_the_destination_is_called_one(source: Path, tmp_path: Path) -> None:
    (tmp_path / "dest").mkdir()
    (tmp_path / "dest" / "c0").symlink_to(tmp_path)
    summary = stage(FolderSource(source), tmp_path / "dest", Selection())
    assert summary.n_failed and "c0 is a link that staging did not make" in summary.failed_examples[0]


def test_a_disk_that_becomes_full_ends_the_staging_and_keeps_what_is_whole(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = iter(range(1_000))
    whole = os.write

    def write(fd: int, data: object) -> int:
        if next(written) >= 10:
            raise OSError(28, "No space left on device")
        return whole(fd, data)  # type: ignore[arg-type]

    destination = tmp_path / "dest"
    with monkeypatch.context() as patched:
        patched.setattr(target.os, "write", write)
        with pytest.raises(DiskFull, match="No space left on device: what is complete is kept: make room"):
            stage(FolderSource(source), destination, Selection(), Options(concurrency=2))
    assert list((state_folder(destination) / "partial").iterdir()) == []
    summary = stage(FolderSource(source), destination, Selection())
    assert summary.kept >= 8 and summary.kept + summary.copied == 60


class _Odd(FolderSource):
    """A folder whose listing also gives keys that no file may have."""

    def objects(self, prefix: str = "") -> object:  # type: ignore[override]
        yield from super().objects(prefix)
        for key in ("../outside", "/etc/outside", "a\nb", "c0/" + 300 * "x"):
            yield ObjectInfo(key, 3, "1")


def test_keys_that_cannot_be_files_are_left_out_and_named(source: Path, tmp_path: Path) -> None:
    summary = stage(_Odd(source), tmp_path / "deep/dest", Selection())
    assert (summary.copied, summary.n_refused, len(summary.refused_examples)) == (60, 4, 4)
    assert not (tmp_path / "deep/outside").exists()


def test_a_link_at_the_destination_does_not_lead_out_of_it(source: Path, tmp_path: Path) -> None:
    destination, outside = tmp_path / "dest", tmp_path / "outside"
    destination.mkdir()
    outside.mkdir()
    (destination / "c0").symlink_to(outside)
    summary = stage(FolderSource(source), destination, Selection())
    assert (summary.n_failed, summary.copied, list(outside.iterdir())) == (20, 40, [])


class _Shrinking(FolderSource):
    """A source whose files change while they are read, and one of which is gone by then."""

    def stream(
        self, obj: ObjectInfo, buffer: memoryview, start: int = 0, length: int | None = None
    ) -> Iterator[memoryview]:
        if obj.key == "c0/0.bin":
            raise Failure("gone", obj.key)
        for piece in super().stream(obj, buffer, start, length):
            yield piece[:-1] if obj.key == "c0/3.bin" else piece


def test_a_file_that_changed_while_it_was_read_never_gets_its_final_name(source: Path, tmp_path: Path) -> None:
    summary = stage(_Shrinking(source), tmp_path / "dest", Selection())
    assert (summary.copied, summary.n_failed) == (58, 2)
    assert not (tmp_path / "dest/c0/3.bin").exists()


def test_files_larger_than_the_buffer_come_whole_in_every_way(tmp_path: Path) -> None:
    from PIL import Image

    from flatout.stage.pictures import PictureChange

    (tmp_path / "source").mkdir()
    data = os.urandom(9_000_000)
    (tmp_path / "source/a.bin").write_bytes(data)
    Image.frombytes("RGB", (1000, 1000), data[:3_000_000]).save(tmp_path / "source/a.jpg", quality=100)
    assert (tmp_path / "source/a.jpg").stat().st_size > 1 << 20  # of a thread's buffer that a picture passes through
    opened = FolderSource(tmp_path / "source")
    obj = next(obj for obj in opened.objects() if obj.key == "a.bin")
    assert opened.read(obj) == data and opened.read(obj, 5, 8_000_000) == data[5:8_000_005]
    options = Options(change=PictureChange(short_side=500))
    assert stage(opened, tmp_path / "dest", Selection(), options).changed == 1
    assert (tmp_path / "dest/a.bin").read_bytes() == data
    with Image.open(tmp_path / "dest/a.jpg") as there, Image.open(tmp_path / "source/a.jpg") as here:
        small, expected = there.convert("L").resize((8, 8)), here.convert("L").resize((8, 8))
        pairs = zip(small.tobytes(), expected.tobytes(), strict=True)
        assert max(abs(one - other) for one, other in pairs) < 8


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_quarter_of_a_million_keys_are_listed_in_constant_memory(tmp_path: Path) -> None:
    import tracemalloc

    class Endless(FolderSource):
        def objects(self, prefix: str = "") -> object:  # type: ignore[override]
            for number in range(250_000):
                yield ObjectInfo(f"train/c{number % 1000}/{number}.jpg", 110_000, "1")

        def read(self, obj: ObjectInfo, start: int = 0, length: int | None = None) -> bytes:
            return b""

    tracemalloc.start()
    try:
        outlook = look_ahead(Endless(tmp_path), tmp_path / "dest", Selection(exclude=("*/c7/*",)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert outlook.files == 249_750 and outlook.bytes == 249_750 * 110_000
    assert peak < 4 << 20


def test_what_a_killed_staging_left_half_done_is_removed(source: Path, tmp_path: Path) -> None:
    destination = tmp_path / "dest"
    stage(FolderSource(source), destination, Selection(include=("c0/*",)))
    (state_folder(destination) / "partial/123-4").write_bytes(b"half")
    said: list[str] = []
    stage(FolderSource(source), destination, Selection(), report=said.append)
    assert said == ["1 unfinished file of an interrupted staging removed"]
    assert remove_partial(destination) == 0


def test_a_file_that_is_rewritten_while_it_is_copied_comes_in_one_version(tmp_path: Path) -> None:
    """Both for files in one piece and for those in parts, whose parts would be of two versions."""
    (tmp_path / "source").mkdir()
    for name, size in (("small.bin", 5_000_000), ("large.bin", 40_000_000)):
        (tmp_path / "source" / name).write_bytes(b"a" * size)

    class Rewritten(FolderSource):
        rewritten: ClassVar[set[str]] = set()

        def stream(
            self, obj: ObjectInfo, buffer: memoryview, start: int = 0, length: int | None = None
        ) -> Iterator[memoryview]:  # type: ignore[override]
            for piece in super().stream(obj, buffer, start, length):
                yield piece
                if obj.key not in self.rewritten:
                    self.rewritten.add(obj.key)
                    time.sleep(0.02)  # a clock tick of the kernel's, by which it stamps files
                    (self.root / obj.key).write_bytes(b"b" * obj.size)

    summary = stage(Rewritten(tmp_path / "source"), tmp_path / "dest", Selection())
    assert (summary.copied, summary.n_failed) == (2, 0) and summary.retries >= 2
    for name in ("small.bin", "large.bin"):
        assert set((tmp_path / "dest" / name).read_bytes()) == {ord("b")}
    assert stage(FolderSource(tmp_path / "source"), tmp_path / "dest", Selection()).kept == 2


def test_a_file_that_changes_whenever_it_is_copied_fails_and_keeps_no_name(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/log.bin").write_bytes(b"a")

    class Growing(FolderSource):
        def stream(
            self, obj: ObjectInfo, buffer: memoryview, start: int = 0, length: int | None = None
        ) -> Iterator[memoryview]:  # type: ignore[override]
            with (self.root / obj.key).open("ab") as file:
                file.write(b"more")
            yield from super().stream(obj, buffer, start, length)

    summary = stage(Growing(tmp_path / "source"), tmp_path / "dest", Selection())
    assert (summary.n_failed, summary.copied) == (1, 0) and "changed at the source" in summary.failed_examples[0]
    assert list((tmp_path / "dest").iterdir()) == []


class _Unlistable(FolderSource):
    """A source whose listing fails for a reason."""

    kind: Kind = "gone"

    def objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        raise Failure(self.kind, "listing")
        yield


@pytest.mark.parametrize(
    ("kind", "error", "advice"),
    [
        ("gone", UsageError, "check the name"),
        ("denied", StagingFailed, "credentials"),
        ("never", StagingFailed, "address"),
    ],
)
def test_a_source_that_cannot_be_listed_says_what_to_look_at_and_leaves_nothing(
    source: Path, tmp_path: Path, kind: Kind, error: type[Exception], advice: str
) -> None:
    opened = _Unlistable(source)
    opened.kind = kind
    with pytest.raises(error, match=advice) as failed:
        stage(opened, tmp_path / "dest", Selection())
    assert "same command" not in str(failed.value)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_listing_that_fails_takes_nothing_from_a_destination_that_was_staged(source: Path, tmp_path: Path) -> None:
    stage(FolderSource(source), tmp_path / "dest", Selection())
    shutil.rmtree(tmp_path / "dest")
    with pytest.raises(UsageError):
        stage(_Unlistable(source), tmp_path / "dest", Selection())
    assert state_folder(tmp_path / "dest").is_dir() and not (tmp_path / "dest").exists()


def test_the_summary_says_what_replaces_files_of_the_user_and_counts_one_as_one(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    for name in ("a", "b"):
        (tmp_path / "source" / name).write_text(name)
    (tmp_path / "dest").mkdir()
    (tmp_path / "dest/a").write_text("mine")
    summary = stage(FolderSource(tmp_path / "source"), tmp_path / "dest", Selection())
    text = summary_lines(summary)
    assert "staged 1 file, " in text and (summary.n_failed, summary.in_the_way) == (1, 1)
    assert "1 FAILED" in text and "--overwrite replaces them" in text and "the same command" not in text


def test_one_file_larger_than_the_room_fails_and_the_others_come(source: Path, tmp_path: Path) -> None:
    class Huge(FolderSource):
        def objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
            yield ObjectInfo("huge.bin", 10**15, "1")
            yield from super().objects(prefix)

        def attributes(self, obj: ObjectInfo) -> None:
            return None

    summary = stage(Huge(source), tmp_path / "dest", Selection())
    assert (summary.copied, summary.n_failed) == (60, 1) and summary.failed_examples[0].startswith(
        "huge.bin: has 1,000,000"
    )
    assert "the same command" in summary_lines(summary)
