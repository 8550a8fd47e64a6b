"""The memory-mapped event file: growth, threads, forks, a full disk, and what a reader sees of it meanwhile."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from flatout.probe import events, writer
from flatout.record.events import read_events
from flatout.record.names import read_names

PAGE = 4096


def test_an_event_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    file = writer.EventFile(tmp_path / "1.events", PAGE)
    file.emit(events.FORWARD, 1_000, 1_250, 7, -1, 2**62)
    file.flush()
    read = read_events(tmp_path / "1.events")
    assert read.events.tolist() == [(events.FORWARD, 0, 7, 1_000, 250, -1, 2**62)]
    assert read.pid == os.getpid()


def test_the_file_grows_by_chunks_and_keeps_every_event(tmp_path: Path) -> None:
    file = writer.EventFile(tmp_path / "1.events", PAGE)
    reserved = (tmp_path / "1.events").stat().st_blocks
    many = writer.CHUNK_BYTES // events.EVENT.size + 1_000
    for number in range(many):
        file.emit(events.LOG, number, number, 0, number)
    file.flush()
    read = read_events(tmp_path / "1.events").events
    assert read["a"].tolist() == list(range(many))
    assert (tmp_path / "1.events").stat().st_blocks > reserved


def test_threads_that_write_at_once_lose_nothing_and_mix_nothing(tmp_path: Path) -> None:
    file = writer.EventFile(tmp_path / "1.events", PAGE)
    together = threading.Barrier(4)

    def write(mark: int) -> None:
        together.wait()
        for number in range(5_000):
            file.emit(events.LOG, mark, mark, mark, number, mark)

    threads = [threading.Thread(target=write, args=(mark,)) for mark in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    file.flush()
    read = read_events(tmp_path / "1.events").events
    assert len(read) == 20_000
    for mark in range(1, 5):
        own = read[read["arg"] == mark]
        assert own["a"].tolist() == list(range(5_000))
        assert set(own["b"].tolist()) == set(own["start"].tolist()) == {mark}
        assert len(set(own["thread"].tolist())) == 1
    assert sorted(set(read["thread"].tolist())) == [1, 2, 3, 4]


def test_the_main_thread_is_number_0_whoever_writes_first(tmp_path: Path) -> None:
    file = writer.EventFile(tmp_path / "1.events", PAGE)
    other = threading.Thread(target=file.emit, args=(events.LOG, 1, 1))
    other.start()
    other.join()
    file.emit(events.LOG, 2, 2)
    file.emit(events.STACK, 3, 3, thread=threading.main_thread().ident)
    file.flush()
    assert read_events(tmp_path / "1.events").events["thread"].tolist() == [1, 0, 0]


def test_events_that_cannot_be_reserved_are_counted_and_the_earlier_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = writer.EventFile(tmp_path / "1.events", PAGE)

    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    room = PAGE // events.EVENT.size
    for number in range(room + 25):
        file.emit(events.LOG, number, number)
    file.flush()
    read = read_events(tmp_path / "1.events")
    assert (len(read.events), read.lost) == (room, 25)
    assert read.problems == ("1.events: 25 events could not be written (disk full)",)


def test_a_disk_that_is_full_at_once_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        writer.EventFile(tmp_path / "1.events")
    assert list(tmp_path.iterdir()) == []


def test_events_reach_the_file_by_themselves_once_many_wait(tmp_path: Path) -> None:
    file = writer.EventFile(tmp_path / "1.events", PAGE)
    for number in range(writer.WAITING_AT_MOST):
        file.emit(events.LOG, number, number)
    written = len(read_events(tmp_path / "1.events").events)
    assert writer.WAITING_AT_MOST - written <= writer.WAITING_AT_MOST // 7


FORKING = """
import os, sys
from flatout.probe.writer import EventFile, NamesFile
file, names = EventFile(sys.argv[1] + "/1.events", 4096), NamesFile(sys.argv[1] + "/1.names")
file.emit(12, 1, 1)
names.text("before")
file.emit(12, 2, 2)  # not yet in the file when the child is made
child = os.fork()
if child == 0:
    file.abandon()
    names.abandon()
    file.emit(12, 666, 666)
    file.flush()
    os._exit(0)
os.waitpid(child, 0)
file.emit(12, 3, 3)
file.flush()
names.text("after")
"""


def test_a_forked_child_that_has_left_the_file_does_not_write_to_it(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORKING, str(tmp_path)], check=True)
    assert read_events(tmp_path / "1.events").events["start"].tolist() == [1, 2, 3]
    assert [entry["text"] for entry in read_names(tmp_path / "1.names").entries.values()] == ["before", "after"]


WRITING = """
import itertools, sys
from flatout.probe.writer import EventFile
file = EventFile(sys.argv[1], 4096)
print("started", flush=True)
for number in itertools.count(1):
    file.emit(12, number, 2 * number, number & 0xFFFF, 3 * number, 5 * number)
"""


def test_what_a_killed_writer_left_is_whole_and_without_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "1.events"
    for _ in range(5):
        with subprocess.Popen([sys.executable, "-c", WRITING, str(path)], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            while not len(read_events(path).events):
                pass
            seen = read_events(path).events.copy()
            child.kill()
        left = read_events(path).events
        for read, settled in ((seen, len(seen) - 1), (left, len(left) - 1)):
            # The last event may be one that was being written; all before it are settled.
            number = np.arange(1, settled + 1)
            assert read["start"][:settled].tolist() == number.tolist()
            assert read["duration"][:settled].tolist() == number.tolist()
            assert read["b"][:settled].tolist() == (5 * number).tolist()
        assert len(left) >= len(seen)
        path.unlink()


def test_a_text_is_written_once_and_later_fields_add_to_an_entry(tmp_path: Path) -> None:
    names = writer.NamesFile(tmp_path / "1.names")
    loader = names.add("loader", batch_size=4)
    assert names.text("print") == names.text("print")
    names.write(loader, "loader", {"batch_bytes": 80})
    read = read_names(tmp_path / "1.names")
    assert len((tmp_path / "1.names").read_text().splitlines()) == 3
    assert read.get(loader, "loader") == {"id": loader, "type": "loader", "batch_size": 4, "batch_bytes": 80}


def test_a_process_file_is_replaced_whole_and_its_temporary_file_goes(tmp_path: Path) -> None:
    target = tmp_path / "1.json"
    writer.write_json(str(target), {"pid": 1})
    writer.write_json(
        str(target), {"pid": 1, "odd": {3}, "outputs": np.int64(2), "share": np.float32(0.5), "on": np.True_}
    )
    assert [path.name for path in tmp_path.iterdir()] == ["1.json"]
    assert json.loads(target.read_text()) == {"pid": 1, "odd": "{3}", "outputs": 2, "share": 0.5, "on": True}


def test_a_process_file_in_a_folder_that_is_gone_is_no_error(tmp_path: Path) -> None:
    writer.write_json(str(tmp_path / "gone" / "1.json"), {"pid": 1})
    assert list(tmp_path.iterdir()) == []
