"""Copies on a fast disk: the right bytes always, within the budget, by any number of processes at once."""

from __future__ import annotations

import multiprocessing
import os
import random
from pathlib import Path

import pytest

from flatout.probe.read_cache import ReadCache

SIZE = 1_000


@pytest.fixture
def slow(tmp_path: Path) -> list[Path]:
    (tmp_path / "slow").mkdir()
    for number in range(100):
        (tmp_path / f"slow/{number}.bin").write_bytes(bytes([number]) * SIZE)
    return [tmp_path / f"slow/{number}.bin" for number in range(100)]


def make(tmp_path: Path, files: float, token: int = 1_000) -> ReadCache:
    cache = ReadCache(str(tmp_path / "cache"), int(files * SIZE), token)
    cache.begin()
    return cache


def read(cache: ReadCache, path: Path) -> bool:
    """Whether it came from the cache; the bytes are right in any case."""
    there = cache.open_path(str(path))
    assert Path(there).read_bytes() == path.read_bytes()
    return there != str(path)


def held(tmp_path: Path) -> int:
    return sum(p.stat().st_size for p in (tmp_path / "cache").rglob("*-*") if not p.is_symlink())


def test_the_second_pass_finds_what_fitted_and_the_budget_is_kept(slow: list[Path], tmp_path: Path) -> None:
    cache, draw = make(tmp_path, 30), random.Random(0)
    for number in range(5):
        draw.shuffle(slow)
        before = cache.counts()["hits"]
        for path in slow:
            read(cache, path)
        assert held(tmp_path) == cache.counts()["used"] <= 30 * SIZE
        if number:  # nothing that the next pass needs was thrown out
            assert cache.counts()["hits"] - before == 30
    assert cache.counts()["files"] == 100


def test_a_changed_file_is_seen_by_the_next_training(slow: list[Path], tmp_path: Path) -> None:
    assert read(make(tmp_path, 30, token=1_000), slow[0])
    slow[0].write_bytes(b"new" * 100)
    cache = make(tmp_path, 30, token=2_000)
    assert read(cache, slow[0]) and cache.counts()["misses"] == 1
    assert read(cache, slow[0]) and cache.counts()["hits"] == 1 and held(tmp_path) == cache.counts()["used"] == 300


def test_files_that_two_passes_did_not_read_make_room(slow: list[Path], tmp_path: Path) -> None:
    old = make(tmp_path, 30, token=1_000)
    for path in slow[:30]:
        read(old, path)
    cache = make(tmp_path, 30, token=2_000)
    rates = []
    for _ in range(8):
        before = cache.counts()["hits"]
        for path in slow[50:80]:
            read(cache, path)
        rates.append(cache.counts()["hits"] - before)
        assert held(tmp_path) <= 30 * SIZE
    assert rates[0] == 0 and rates[-1] == 30


def test_what_a_killed_training_left_half_done_is_removed(slow: list[Path], tmp_path: Path) -> None:
    cache = make(tmp_path, 30)
    read(cache, slow[0])
    link = next(path for path in (tmp_path / "cache").rglob("*") if path.is_symlink())
    Path(f"{link}x.part").write_bytes(b"half")
    again = make(tmp_path, 30)
    assert not list((tmp_path / "cache").rglob("*.part")) and again.counts()["used"] == SIZE


def test_a_file_larger_than_the_budget_or_a_full_disk_is_read_where_it_is(
    slow: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = make(tmp_path, 0.5)
    assert not read(cache, slow[0])
    cache = make(tmp_path, 30)

    def full(source: int, out: int) -> int:
        os.write(out, b"some")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("flatout.probe.read_cache._copy", full)
    assert not read(cache, slow[1]) and cache.counts()["used"] == 0
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.parent.parent.name == "cache"]


def work(folder: str, files: list[str], seed: int) -> None:
    cache, draw = ReadCache(folder, 40 * SIZE, 1_000), random.Random(seed)
    for _ in range(20):
        draw.shuffle(files)
        for path in files:
            number = int(Path(path).stem)
            try:
                data = Path(cache.open_path(path)).read_bytes()
            except FileNotFoundError:  # as the patched open does
                data = Path(path).read_bytes()
            assert data == bytes([number]) * SIZE


def test_many_processes_share_it(slow: list[Path], tmp_path: Path) -> None:
    cache = make(tmp_path, 40)
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=work, args=(str(tmp_path / "cache"), [str(p) for p in slow], seed)) for seed in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    counts = cache.counts()
    assert held(tmp_path) == counts["used"] <= 40 * SIZE
    assert counts["hits"] > 0.3 * (counts["hits"] + counts["misses"])
