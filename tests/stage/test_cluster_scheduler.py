"""The scheduler of a cluster staging, on hosts that are dictionaries and are lost at a chosen call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

import pytest

from flatout.errors import StagingFailed
from flatout.stage.cluster.ray_hosts import HostLost
from flatout.stage.cluster.spread import FULL, SHARD, ClusterStaging, owner
from flatout.stage.selection import Selection
from flatout.stage.sources.base import ObjectInfo, Source

NAMES = ["0: a", "1: b", "2: c"]
KEYS = [f"{number}.jpg" for number in range(60)]


class Listing(Source):
    address = "listing:"

    def objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        yield from (ObjectInfo(key, 10, "v") for key in KEYS)

    def folders(self, prefix: str = "") -> list[str]:
        return []

    def stream(
        self, obj: ObjectInfo, buffer: memoryview, start: int = 0, length: int | None = None
    ) -> Generator[memoryview, None, None]:
        raise AssertionError("the scheduler reads no objects")


class Counts(NamedTuple):
    host: str
    total_files: int


class FakeCall:
    def __init__(self, hosts: FakeHosts, host: str, method: str, argument: Any) -> None:
        self.hosts, self.host, self.method, self.argument = hosts, host, method, argument

    def result(self) -> Any:
        giver = self.argument.host if isinstance(self.argument, FakeCall) else self.host
        for name in (self.host, giver):
            if name not in self.hosts.files:
                raise HostLost(name)
        if (self.host, self.method) in self.hosts.losing:
            self.hosts.losing.remove((self.host, self.method))
            self.hosts.lose(self.host)
            raise HostLost(self.host)
        files = self.hosts.files[self.host]
        if self.method == "fetch":
            wanted = [obj for obj in self.argument if obj[0] not in self.hosts.broken]
            self.hosts.fetched.update(obj[0] for obj in wanted if obj[0] not in files)
            files.update(obj[0] for obj in wanted)
            return wanted
        if self.method == "missing":
            return [obj for obj in self.argument if obj[0] not in files]
        if self.method == "give":
            return [key for key in self.argument if key in files]
        if self.method == "take":
            pieces = self.argument.result()
            files.update(pieces)
            return pieces
        return Counts(self.host, len(files)) if self.method == "finish" else self.host


class FakeHosts:
    def __init__(self, *losing: tuple[str, str], broken: tuple[str, ...] = ()) -> None:
        self.files: dict[str, set[str]] = {name: set() for name in NAMES}
        self.everyone, self.lost = list(NAMES), list[str]()
        self.losing, self.broken = list(losing), broken
        self.fetched: Counter[str] = Counter()  # from the source

    def living(self) -> list[str]:
        if not self.files:
            raise StagingFailed("all hosts were lost")
        return list(self.files)

    def call(self, name: str, method: str, argument: Any = None) -> FakeCall:
        if name not in self.files:
            raise HostLost(name)
        return FakeCall(self, name, method, argument)

    def lose(self, name: str) -> None:
        del self.files[name]
        self.lost.append(name)


def run(hosts: FakeHosts, replicate: str) -> Any:
    return ClusterStaging(Listing(), Selection(), None, hosts, replicate, lambda line: None).run()


def test_a_shard_is_what_a_host_owns_and_a_full_copy_leaves_the_source_once() -> None:
    hosts = FakeHosts()
    summary = run(hosts, SHARD)
    assert all(key in hosts.files[owner(key, NAMES)] for key in KEYS)
    assert sum(host["total_files"] for host in summary.hosts) == len(KEYS) == summary.listed
    hosts = FakeHosts()
    summary = run(hosts, FULL)
    assert [host["total_files"] for host in summary.hosts] == [len(KEYS)] * 3
    assert hosts.fetched == Counter(KEYS) and (summary.moved, summary.lost, summary.n_failed) == (0, (), 0)


@pytest.mark.parametrize("method", ["fetch", "missing", "give", "take", "name"])
@pytest.mark.parametrize("name", NAMES)
def test_whenever_a_host_is_lost_the_others_have_everything_at_the_end(name: str, method: str) -> None:
    hosts = FakeHosts((name, method))
    summary = run(hosts, FULL)
    left = [other for other in NAMES if other != name]
    assert summary.lost == (name,) and list(hosts.files) == left
    assert all(hosts.files[other] == set(KEYS) for other in left)
    assert summary.n_failed == 0 and summary.moved > 0
    hosts = FakeHosts((name, method)) if method in ("fetch", "name") else FakeHosts((name, "fetch"))
    run(hosts, SHARD)
    assert set().union(*hosts.files.values()) == set(KEYS)
    assert all(key in hosts.files[owner(key, left)] for key in KEYS)


def test_an_object_that_its_owner_cannot_fetch_is_counted_once_and_not_requested_by_all() -> None:
    hosts = FakeHosts(broken=("7.jpg",))
    summary = run(hosts, FULL)
    assert summary.n_failed == 1 and all(len(files) == len(KEYS) - 1 for files in hosts.files.values())


def test_the_loss_of_all_hosts_or_of_one_at_the_end_is_an_error() -> None:
    with pytest.raises(StagingFailed, match="all hosts were lost"):
        run(FakeHosts(*((name, "fetch") for name in NAMES)), SHARD)
    with pytest.raises(StagingFailed, match="1: b was lost at the end"):
        run(FakeHosts(("1: b", "finish")), SHARD)


def test_of_a_remote_error_the_exception_itself_is_told() -> None:
    pytest.importorskip("ray")
    from flatout.stage.cluster.ray_hosts import _cause

    assert _cause(ValueError("ray::ClusterHost.stage()\n  File x\n\nOSError: disk full ")) == "OSError: disk full"
    assert _cause(ValueError("")) == "ValueError"
