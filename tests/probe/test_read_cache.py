"""Copies on a fast disk: the right bytes always, within the budget, by any number of processes at once."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flatout.probe.file_cache import counts
from flatout.probe.file_cache.folder import MARK, TAG
from flatout.probe.file_cache.read_cache import ReadCache

SIZE = 1_000
Make = Callable[..., ReadCache]


@pytest.fixture
def slow(tmp_path: Path) -> list[Path]:
    (tmp_path / "slow").mkdir()
    for number in range(100):
        (tmp_path / f"slow/{number}.bin").write_bytes(bytes([number]) * SIZE)
    return [tmp_path / f"slow/{number}.bin" for number in range(100)]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes the cache of one more training, with room for so many files; those made before have ended."""
    began: list[ReadCache] = []

    def one(files: float, others_end: bool = True) -> ReadCache:
        while others_end and began:
            began.pop().end()
        cache = ReadCache(str(tmp_path / "fast"), int(files * SIZE))
        cache.begin()
        began.append(cache)
        return cache

    yield one
    for cache in began:
        cache.end()


def read(cache: ReadCache, path: Path) -> bool:
    """Whether it came from the cache; the bytes are right in any case."""
    there = cache.open_path(str(path))
    assert Path(there).read_bytes() == path.read_bytes()
    return there != str(path)


def own(tmp_path: Path) -> Path:
    return tmp_path / "fast/flatout-cache"


def copies(tmp_path: Path) -> list[Path]:
    return [path for path in own(tmp_path).rglob("*-*") if not path.is_symlink()]


def held(tmp_path: Path) -> int:
    return sum(path.stat().st_size for path in copies(tmp_path))


def test_the_second_pass_finds_what_fitted_and_the_budget_is_kept(slow: list[Path], tmp_path: Path, make: Make) -> None:
    cache, draw = make(30), random.Random(0)
    for number in range(5):
        draw.shuffle(slow)
        before = cache.counts()["hits"]
        for path in slow:
            read(cache, path)
        assert held(tmp_path) == cache.counts()["used"] <= 30 * SIZE
        if number:  # nothing that the next pass needs was thrown out
            assert cache.counts()["hits"] - before == 30
    assert cache.counts()["files"] == 100


def test_a_changed_file_is_seen_by_the_next_training(slow: list[Path], tmp_path: Path, make: Make) -> None:
    assert read(make(30), slow[0])
    slow[0].write_bytes(b"new" * 100)
    cache = make(30)
    assert read(cache, slow[0]) and cache.counts()["misses"] == 1
    assert read(cache, slow[0]) and cache.counts()["hits"] == 1 and held(tmp_path) == cache.counts()["used"] == 300


def test_a_file_that_the_training_writes_is_read_where_it_is(slow: list[Path], tmp_path: Path, make: Make) -> None:
    cache = make(30)
    assert read(cache, slow[0])
    cache.written(str(slow[0]))
    slow[0].write_bytes(b"new" * 100)
    assert not read(cache, slow[0]) and cache.counts()["used"] == held(tmp_path) == 0
    make(30, others_end=False)  # another training that begins meanwhile changes nothing about it
    assert not read(cache, slow[0])
    assert read(make(30), slow[0])


def test_files_that_two_passes_did_not_read_make_room(slow: list[Path], tmp_path: Path, make: Make) -> None:
    old = make(30)
    for path in slow[:30]:
        read(old, path)
    cache = make(30)
    rates = []
    for _ in range(8):
        before = cache.counts()["hits"]
        for path in slow[50:80]:
            read(cache, path)
        rates.append(cache.counts()["hits"] - before)
        assert held(tmp_path) <= 30 * SIZE
    assert rates[0] == 0 and rates[-1] == 30


def test_the_files_of_others_are_left_alone(slow: list[Path], tmp_path: Path, make: Make) -> None:
    fast = tmp_path / "fast"
    theirs = {
        "state": b"thesis",
        "lock": b"x",
        "movie.mkv.part": b"half a movie",
        "sub/x.part": b"y",
        "00/1-2": b"z",
        "flatout-cache/notes.part": b"mine",
        "flatout-cache/00/state": b"mine",
        "flatout-cache/00/paper-1-2-3.part": b"mine",
    }
    read(make(30), slow[0])
    (own(tmp_path) / "00").mkdir(exist_ok=True)
    for name, data in theirs.items():
        (fast / name).parent.mkdir(parents=True, exist_ok=True)
        (fast / name).write_bytes(data)
    for path in slow:
        read(make(3), path)
    assert {name: (fast / name).read_bytes() for name in theirs} == theirs


@pytest.mark.parametrize("there", ["file", "link", "folder", "tag of another program"])
def test_a_folder_that_flatout_did_not_make_is_refused(there: str, tmp_path: Path, make: Make) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/x.part").write_text("theirs")
    (tmp_path / "fast").mkdir()
    if there == "file":
        own(tmp_path).write_text("theirs")
    elif there == "link":
        own(tmp_path).symlink_to(tmp_path / "elsewhere")
    else:
        (tmp_path / "elsewhere").rename(own(tmp_path))
        if there != "folder":
            (own(tmp_path) / TAG).write_bytes(MARK.splitlines()[0] + b"\n# made by cargo\n")
    before = {path: path.is_dir() or path.read_bytes() for path in tmp_path.rglob("*")}
    with pytest.raises(OSError, match=r"not made by flatout|is no folder"):
        make(30)
    assert {path: path.is_dir() or path.read_bytes() for path in tmp_path.rglob("*")} == before


def test_a_folder_whose_making_was_killed_is_made_anew(slow: list[Path], tmp_path: Path, make: Make) -> None:
    own(tmp_path).mkdir(parents=True)
    (own(tmp_path) / TAG).write_bytes(MARK[:20])
    assert read(make(30), slow[0]) and (own(tmp_path) / TAG).read_bytes() == MARK


def test_what_killed_trainings_left_is_removed(slow: list[Path], tmp_path: Path, make: Make) -> None:
    cache = make(30)
    for path in slow[:4]:
        read(cache, path)
    whole, orphan, gone, part = (Path(cache.open_path(str(path))) for path in slow[:4])
    orphan.with_name(orphan.name[:32]).unlink()  # killed between the copy's name and its link
    gone.unlink()
    part.rename(part.with_name(f"{part.name[:32]}-3e8.part"))  # killed while it was written
    (whole.parent / f"{whole.name[:32]}.link").symlink_to(whole.name)
    again = make(30)
    assert copies(tmp_path) == [whole] and again.counts()["used"] == SIZE
    assert all(read(again, path) for path in slow[:4]) and again.counts()["used"] == held(tmp_path) == 4 * SIZE


def test_copies_that_are_damaged_on_the_fast_disk_are_made_again(slow: list[Path], tmp_path: Path, make: Make) -> None:
    cache = make(30)
    for path in slow[:3]:
        read(cache, path)
    cut, zeros, cut_meanwhile = (Path(cache.open_path(str(path))) for path in slow[:3])
    times = {path: path.stat().st_mtime_ns for path in (cut, zeros)}
    cut.write_bytes(b"\0" * 10)
    zeros.write_bytes(bytes([0, 1] * (SIZE // 2)))
    for path, then in times.items():
        os.utime(path, ns=(then, then))
    cache = make(30)
    assert all(read(cache, path) for path in slow[:3]) and cache.counts()["misses"] == 2
    os.truncate(cut_meanwhile, 10)
    assert read(cache, slow[2]) and held(tmp_path) == cache.counts()["used"] == 3 * SIZE


def test_a_smaller_budget_shrinks_the_cache(slow: list[Path], tmp_path: Path, make: Make) -> None:
    cache = make(30)
    for path in slow[:30]:
        read(cache, path)
    cache = make(7)
    assert held(tmp_path) == cache.counts()["used"] == 7 * SIZE
    assert [read(cache, path) for path in slow[23:30]] == [True] * 7 and cache.counts()["hits"] == 7


def test_times_before_1970_are_served_again(slow: list[Path], make: Make) -> None:
    os.utime(slow[0], ns=(-5_000_000_001, -5_000_000_001))
    read(make(30), slow[0])
    cache = make(30)
    assert read(cache, slow[0]) and cache.counts()["hits"] == 1


def test_a_copy_is_for_its_owner_alone(slow: list[Path], tmp_path: Path, make: Make) -> None:
    slow[0].chmod(0o600)
    read(make(30), slow[0])
    assert all(path.lstat().st_mode & 0o077 == 0 for path in (own(tmp_path), *copies(tmp_path)))


def test_what_is_no_regular_file_is_read_where_it_is(tmp_path: Path, make: Make) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert make(30).open_path(str(tmp_path / "fifo")) == str(tmp_path / "fifo")


def test_two_trainings_use_it_at_once(slow: list[Path], tmp_path: Path, make: Make) -> None:
    first = make(30)
    for path in slow[:10]:
        read(first, path)
    second = make(30, others_end=False)
    assert second.counts()["used"] == held(tmp_path) == first.counts()["used"]
    slow[0].write_bytes(b"new" * 100)
    assert Path(second.open_path(str(slow[0]))).read_bytes() == b"new" * 100
    for path in slow[:10]:
        assert read(second, path) and read(first, path)
    assert second.counts()["used"] == held(tmp_path)


def test_a_copy_that_is_being_made_stays_when_another_training_begins(
    slow: list[Path], tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, copied = make(30), []

    def slowly(source: int, out: int) -> tuple[int, int]:
        other = make(30, others_end=False)
        copied.append(other.counts()["used"])
        assert other.open_path(str(slow[0])) == str(slow[0])  # somebody is at it
        return copy(source, out)

    from flatout.probe.file_cache.read_cache import _copy as copy

    monkeypatch.setattr("flatout.probe.file_cache.read_cache._copy", slowly)
    assert read(cache, slow[0]) and copied == [SIZE]
    assert held(tmp_path) == cache.counts()["used"] == SIZE


def test_a_file_larger_than_the_budget_or_a_full_disk_is_read_where_it_is(
    slow: list[Path], tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not read(make(0.5), slow[0])
    cache = make(30)

    def full(source: int, out: int) -> tuple[int, int]:
        os.write(out, b"some")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("flatout.probe.file_cache.read_cache._copy", full)
    assert not read(cache, slow[1]) and cache.counts()["used"] == 0
    assert not copies(tmp_path)


def test_a_file_that_changes_while_it_is_copied_is_not_kept(
    slow: list[Path], tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flatout.probe.file_cache.read_cache import _copy as copy

    def torn(source: int, out: int) -> tuple[int, int]:
        found = copy(source, out)
        slow[0].write_bytes(b"x" * SIZE)
        os.utime(slow[0], ns=(1, 1))
        return found

    monkeypatch.setattr("flatout.probe.file_cache.read_cache._copy", torn)
    assert not read(make(30), slow[0]) and not copies(tmp_path)


def test_a_disk_without_room_for_the_counts_is_an_error_and_no_signal(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(counts.os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        make(30)
    monkeypatch.undo()
    make(30)
    state = (own(tmp_path) / "state").stat()
    assert state.st_blocks * 512 >= state.st_size > 1 << 20  # every block is there: no page can fail later


def work(folder: str, token: int, files: list[str], seed: int) -> None:
    cache, draw = ReadCache(folder, 40 * SIZE, token), random.Random(seed)
    for _ in range(20):
        draw.shuffle(files)
        for path in files:
            number = int(Path(path).stem)
            try:
                data = Path(cache.open_path(path)).read_bytes()
            except FileNotFoundError:  # as the patched open does
                data = Path(path).read_bytes()
            assert data == bytes([number]) * SIZE


@pytest.mark.slow
def test_many_processes_share_it(slow: list[Path], tmp_path: Path, make: Make) -> None:
    cache = make(40)
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=work, args=(str(tmp_path / "fast"), cache.token, [str(p) for p in slow], seed))
        for seed in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    counts = cache.counts()
    assert held(tmp_path) == counts["used"] <= 40 * SIZE
    assert counts["hits"] > 0.3 * (counts["hits"] + counts["misses"])


def read_until_killed(folder: str, files: list[str]) -> None:
    cache, began = ReadCache(folder, 40 * SIZE), time.monotonic()
    cache.begin()
    while time.monotonic() < began + 600:
        path = random.choice(files)
        try:
            data = Path(cache.open_path(path)).read_bytes()
        except FileNotFoundError:
            data = Path(path).read_bytes()
        if data != bytes([int(Path(path).stem)]) * SIZE:
            os._exit(3)


def has_copied(own: Path) -> bool:
    return any(path.suffix != ".part" for path in own.rglob("*-*"))


def kill_many(folder: str, files: list[str]) -> None:
    """In a process of its own, without threads: it forks those that are killed."""
    draw = random.Random(5)
    for number in range(100):
        child = os.fork()
        if not child:
            try:
                read_until_killed(folder, files)
            finally:
                os._exit(4)
        while not number and not has_copied(Path(folder, "flatout-cache")):  # the first one lives until then
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.04))
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status


@pytest.mark.slow
def test_killed_at_random_moments_it_never_serves_wrong_bytes(slow: list[Path], tmp_path: Path, make: Make) -> None:
    driver = multiprocessing.get_context("spawn").Process(
        target=kill_many, args=(str(tmp_path / "fast"), [str(path) for path in slow])
    )
    driver.start()
    driver.join()
    assert driver.exitcode == 0
    cache = make(40)
    assert held(tmp_path) == cache.counts()["used"] <= 40 * SIZE
    assert not list(own(tmp_path).rglob("*.part"))
    for path in slow:
        read(cache, path)
    assert cache.counts()["hits"] > 0
