"""Measuring a place: what is slow shows as slow, what is asked in parallel as parallel, and nothing is left behind."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import pytest

from flatout import cli
from flatout.errors import CommandError, UsageError
from flatout.stage.sources.base import ObjectInfo
from flatout.stage.sources.failures import Failure
from flatout.stage.sources.folder import FolderSource
from flatout.storage import probe_files, rates
from flatout.storage.rates import Rate, Storage, measure


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "PHASE_S", 0.1)


class Place:
    """Files that are read in no time."""

    address = "slow:"

    def __init__(self, files: int = 5_000) -> None:
        self.files = files

    def objects(self, prefix: str = ""):  # type: ignore[no-untyped-def]
        yield from (ObjectInfo(f"{number}.jpg", 1_000, "1") for number in range(self.files))

    def folders(self, prefix: str = "") -> list[str]:
        return []

    def read(self, obj: ObjectInfo, start: int = 0, length: int | None = None) -> bytes:
        return bytes(obj.size if length is None else length)


class Far(Place):
    """Each read takes a while of a clock that moves on once all readers wait: any number of reads at once."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self.now = seconds, 0.0
        self.readers = threading.Barrier(1, self.pass_time)

    def pass_time(self) -> None:
        self.now += self.seconds

    def tell(self, text: str) -> None:
        """How many are going to read, as the measurement says before each phase."""
        found = re.search(r"(\d+) at once", text)
        self.readers = threading.Barrier(int(found[1]) if found else 1, self.pass_time)

    def read(self, obj: ObjectInfo, start: int = 0, length: int | None = None) -> bytes:
        self.readers.wait(60)
        return super().read(obj, start, length)

    def perf_counter(self) -> float:
        return self.now

    monotonic = perf_counter


def test_rates_follow_the_latency_and_the_concurrency(monkeypatch: pytest.MonkeyPatch) -> None:
    far = Far(0.0625)
    monkeypatch.setattr(rates, "time", far)
    monkeypatch.setattr(rates, "PHASE_S", 0.75)  # 12 reads of each thread
    found = measure(far, tell=far.tell)
    assert found.cold_s == found.warm_s == found.fixed_s == 0.0625
    assert [(rate.concurrency, rate.files_per_s) for rate in found.small] == [
        (concurrency, 16.0 * concurrency) for concurrency in (1, 2, 4, 8, 16, 32, 64)
    ]
    assert all(rate.bytes_per_s == 1_000 * rate.files_per_s for rate in found.small)
    assert not found.repeated and found.large == () and found.mean_bytes == 1_000


@pytest.mark.parametrize(
    ("measured", "knee"),
    [((10, 20, 30, 31), 4), ((10, 13.6, 13.9, 22), 8), ((10, 20, 18, 12), 2), ((10, 9, 8, 7), 1), ((5, 5, 5, 5.5), 1)],
)
def test_the_knee_is_the_least_concurrency_near_the_best_rate(measured: tuple[float, ...], knee: int) -> None:
    rates = [
        Rate(concurrency=n, files_per_s=rate, bytes_per_s=0) for n, rate in zip((1, 2, 4, 8), measured, strict=True)
    ]
    found = Storage(
        place="p",
        files=1,
        mean_bytes=1,
        cold_s=1,
        warm_s=1,
        small=tuple(rates),
        large=(),
        dropped=True,
        repeated=False,
        fixed_s=0.01,
        per_byte_s=1e-6,
    )
    assert found.files_per_s(rates[0], 10_000) == pytest.approx(measured[0] * 0.010001 / 0.02)
    assert found.knee is not None and found.knee.concurrency == knee


def test_few_files_are_said_to_be_read_again() -> None:
    assert measure(Place(files=3)).repeated


def test_a_machine_that_stands_still_for_longer_than_a_phase_still_gives_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "PHASE_S", 0.0)
    assert all(rate.files_per_s > 0 for rate in measure(Place()).small)


def test_a_place_without_files_or_that_fails_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"no files of up to 4 MiB among 0: --write"):
        measure(FolderSource(tmp_path))
    place = Place()

    def broken(obj: ObjectInfo, start: int = 0, length: int | None = None) -> bytes:
        raise Failure("denied", "slow:/1.jpg: no")

    monkeypatch.setattr(place, "read", broken)
    with pytest.raises(CommandError, match=r"slow:/1\.jpg: no"):
        measure(place)


def test_the_command_measures_with_files_of_its_own_and_removes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(probe_files, "FILES", 40)
    assert cli.main(["storage", str(tmp_path), "--write", "--quiet", "--image-size", "220KB"]) == 0
    out = capsys.readouterr().out
    assert "images/s packed into large files" in out and "at 215 KiB an image" in out
    assert max(map(len, out.splitlines())) <= 80
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a.txt").write_text("x" * 100)
    assert cli.main(["storage", str(tmp_path), "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["files"] == 1 and found["repeated"] and len(found["small"]) == 7
    assert cli.main(["storage", str(tmp_path / "nowhere")]) == 2
    assert cli.main(["storage", "s3://b", "--write"]) == 2


def test_places_without_data_are_one_line_and_nothing_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, said in (
        (["/proc/self"], "a file system of the kernel's own (proc)"),
        ([str(tmp_path / "new"), "--write"], "No such file or directory"),
    ):
        assert cli.main(["storage", *words, "--quiet"]) == 2
        err = capsys.readouterr().err
        assert said in err and len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_for_files_of_its_own_is_told_in_words_of_this_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("flatout.storage.probe_files.FILES", 1 << 50)
    assert cli.main(["storage", str(tmp_path), "--write"]) == 2
    said = capsys.readouterr().err
    assert "--write needs that much: make room" in said and "--classes" not in said
