"""Staging on all hosts of a cluster: one listing; each object leaves the source once; lost hosts are compensated."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Protocol

from flatout.errors import StagingFailed, UsageError
from flatout.stage.cluster.ray_hosts import HostLost, RayHosts, connected
from flatout.stage.destination.safe_paths import refusal
from flatout.stage.selection import Selection, chosen_classes, selected
from flatout.stage.sources.base import ObjectInfo, Source, StoreOptions
from flatout.stage.sources.failures import Failure
from flatout.stage.transfer import Options
from flatout.units import size

SHARD, FULL = "shard", "full"
CHUNK_FILES = 256  # in one call
CHUNKS_IN_FLIGHT = 3  # for each host
CHUNK_BYTES = 64 << 20  # from host to host in one call
REPORT_EVERY_S = 10.0


@dataclass(frozen=True, kw_only=True)
class ClusterSummary:
    """The result of staging on a cluster.

    Attributes:
        replicate: what each host has: SHARD or FULL.
        hosts: the counts of each remaining host.
        lost: names of hosts that were lost on the way.
        listed: objects.
        moved: objects staged by another host than their owner, which was lost.
        n_refused: keys that cannot be files.
    """

    source: str
    replicate: str
    hosts: tuple[dict[str, Any], ...]
    lost: tuple[str, ...]
    listed: int
    listed_bytes: int
    moved: int
    n_refused: int
    n_failed: int
    duration_s: float

    def as_json(self) -> dict[str, object]:
        """Plain values for ``--json``."""
        return asdict(self)


def owner(key: str, hosts: Sequence[str]) -> str:
    """The host that fetches a key: rendezvous hashing, so that a lost host moves only its own keys.

    Thaler and Ravishankar, "A Name-Based Mapping Scheme for Rendezvous", 1996.
    """
    return max(hosts, key=lambda host: hashlib.blake2b(f"{host}\n{key}".encode(), digest_size=8).digest())


def stage_on_cluster(
    source: Source,
    address: str,
    store: StoreOptions,
    destination: str,
    selection: Selection,
    options: Options,
    replicate: str,
    cluster: str = "auto",
    report: Callable[[str], None] = lambda line: None,
) -> ClusterSummary:
    """Stage on every host of a cluster.

    Args:
        source: opened here, for the listing.
        address: of the source; every host reaches it with credentials of its own.
        store: options for reaching it.
        destination: folder on each host; ``{node}`` in it becomes the host's number.
        selection: what to stage.
        options: how.
        replicate: SHARD: every host has its share of the files; FULL: every host has all of them.
        cluster: its address, as Ray takes it.
        report: called with each progress message.

    Raises:
        UsageError: there is no such cluster, or a host cannot write there.
        StagingFailed: no host is left, or one has no room.
    """
    with connected(cluster):
        try:
            classes = chosen_classes(source, selection)
            hosts = RayHosts(address, store, destination, options, classes, report)
            return ClusterStaging(source, selection, classes, hosts, replicate, report).run()
        except Failure as failure:
            raise StagingFailed(f"{failure}: what is complete is kept; run the same command again") from None


class Hosts(Protocol):
    """The operations that the scheduler needs from a cluster; see ``RayHosts``."""

    everyone: list[str]
    lost: list[str]

    def living(self) -> list[str]: ...

    def call(self, name: str, method: str, argument: Any = None) -> Any: ...


class ClusterStaging:
    """The scheduler: assigns objects to hosts, and assigns those of a lost host again."""

    def __init__(
        self,
        source: Source,
        selection: Selection,
        classes: list[str] | None,
        hosts: Hosts,
        replicate: str,
        report: Callable[[str], None],
    ) -> None:
        self.source, self.selection, self.classes = source, selection, classes
        self.hosts, self.replicate, self.report = hosts, replicate, report
        self.began = time.monotonic()
        self.listed = self.listed_bytes = self.moved = self.n_refused = 0
        self.failed: set[str] = set()  # keys; each host that tried one counts it too

    def run(self) -> ClusterSummary:
        """Stage; raises StagingFailed if no host is left, or one is lost at the end."""
        while self._lost_during(self._stage_all):
            # The files of a lost host are gone with it: check that the others have all of them.
            self.report("checking everything again, because a host was lost")
        try:
            counts = [self.hosts.call(name, "finish").result() for name in self.hosts.living()]
        except HostLost as lost:
            raise StagingFailed(f"{lost} at the end: run the same command again to stage its files elsewhere") from None
        return ClusterSummary(
            source=self.source.address,
            replicate=self.replicate,
            hosts=tuple(count._asdict() for count in counts),
            lost=tuple(self.hosts.lost),
            listed=self.listed,
            listed_bytes=self.listed_bytes,
            moved=self.moved,
            n_refused=self.n_refused,
            n_failed=len(self.failed) + len(self.source.unlisted),
            duration_s=time.monotonic() - self.began,
        )

    def _lost_during(self, action: Callable[[], None]) -> bool:
        """Run an action; returns True if a host was lost during it."""
        before = len(self.hosts.lost)
        action()
        for name in self.hosts.living():  # one may be lost after its share is done
            with contextlib.suppress(HostLost):
                self.hosts.call(name, "name").result()
        return len(self.hosts.lost) > before

    def _stage_all(self) -> None:
        self.listed = self.listed_bytes = self.n_refused = self.moved = 0
        self.failed.clear()
        self.source.skipped.clear()
        reported = time.monotonic()
        objects = self._listed()
        while chunk := list(islice(objects, CHUNK_FILES * CHUNKS_IN_FLIGHT * len(self.hosts.living()))):
            holders = self._fetch(chunk)
            if self.replicate == FULL:
                self._replicate(chunk, holders)
            if time.monotonic() - reported > REPORT_EVERY_S:
                reported = time.monotonic()
                hosts = len(self.hosts.living())
                self.report(f"{self.listed:,} files, {size(self.listed_bytes)}, on {hosts} hosts so far")

    def _listed(self) -> Iterator[ObjectInfo]:
        for obj in selected(self.source, self.selection, self.classes):
            if refusal(obj.key) is not None:
                self.n_refused += 1
                continue
            self.listed += 1
            self.listed_bytes += obj.size
            yield obj
        self.n_refused += self.source.skipped.count
        if not self.listed and not self.n_refused and not self.source.unlisted:
            raise UsageError(self.source.nothing_found())

    def _fetch(self, objects: Sequence[ObjectInfo]) -> dict[str, list[ObjectInfo]]:
        """Fetch objects from the source, each by its owner among the living; returns which host has which."""
        holders: dict[str, list[ObjectInfo]] = defaultdict(list)
        waiting = list(objects)
        while waiting:
            shares: dict[str, list[ObjectInfo]] = defaultdict(list)
            for obj in waiting:
                shares[owner(obj.key, self.hosts.living())].append(obj)
            waiting = []
            calls = {
                name: [self.hosts.call(name, "fetch", _plain(chunk)) for chunk in _chunks(share)]
                for name, share in shares.items()
            }
            for name, share in shares.items():
                try:
                    fetched = [ObjectInfo(*obj) for call in calls[name] for obj in call.result()]
                except HostLost:
                    waiting += share
                else:
                    holders[name] += fetched
        complete = {obj.key for held in holders.values() for obj in held}
        self.failed |= {obj.key for obj in objects if obj.key not in complete}
        if self.hosts.lost:
            self.moved += sum(owner(obj.key, self.hosts.everyone) in self.hosts.lost for obj in objects)
        return holders

    def _replicate(self, objects: Sequence[ObjectInfo], holders: dict[str, list[ObjectInfo]]) -> None:
        """Send every host what it lacks, from the hosts that have it; the rest comes from the source."""
        missing = self._missing(objects)
        for giver, held in holders.items():
            wanted = [obj for obj in held if any(obj.key in keys for keys in missing.values())]
            for part in _parts(wanted):
                try:
                    self._send(giver, [obj.key for obj in part], missing)
                except HostLost:
                    break  # of the sender
        # What its owner could not fetch is not requested again by every other host.
        for name in self.hosts.living():
            lacking = [obj for obj in objects if obj.key in missing[name] and obj.key not in self.failed]
            if lacking:
                self._fetch_here(name, lacking)

    def _missing(self, objects: Sequence[ObjectInfo]) -> dict[str, set[str]]:
        """The keys that each host lacks; of a lost host none."""
        calls = {name: self.hosts.call(name, "missing", _plain(objects)) for name in self.hosts.living()}
        missing: dict[str, set[str]] = {name: set() for name in calls}
        for name, call in calls.items():
            with contextlib.suppress(HostLost):
                missing[name] = {obj[0] for obj in call.result()}
        return missing

    def _send(self, giver: str, keys: list[str], missing: dict[str, set[str]]) -> None:
        """Send files from one host to all that lack them; raises HostLost if the sender is lost."""
        pieces = self.hosts.call(giver, "give", keys)
        takers = [name for name in self.hosts.living() if name != giver and missing[name] & set(keys)]
        calls = {name: self.hosts.call(name, "take", pieces) for name in takers}
        for name, call in calls.items():
            try:
                missing[name] -= set(call.result())
            except HostLost as lost:
                if lost.name == giver:
                    raise

    def _fetch_here(self, name: str, objects: Sequence[ObjectInfo]) -> None:
        """Fetch from the source what a host could not get from another host."""
        self.moved += len(objects)
        with contextlib.suppress(HostLost):
            complete = {obj[0] for obj in self.hosts.call(name, "fetch", _plain(objects)).result()}
            self.failed |= {obj.key for obj in objects} - complete


def _plain(objects: Sequence[ObjectInfo]) -> list[tuple[Any, ...]]:
    return [tuple(obj) for obj in objects]


def _chunks(objects: Sequence[ObjectInfo]) -> Iterator[Sequence[ObjectInfo]]:
    for start in range(0, len(objects), CHUNK_FILES):
        yield objects[start : start + CHUNK_FILES]


def _parts(objects: Sequence[ObjectInfo]) -> Iterator[list[ObjectInfo]]:
    """Parts of at most CHUNK_BYTES, or of one object."""
    part: list[ObjectInfo] = []
    total = 0
    for obj in objects:
        if part and total + obj.size > CHUNK_BYTES:
            yield part
            part, total = [], 0
        part.append(obj)
        total += obj.size
    if part:
        yield part


def check_combination(options: Options, packed: bool) -> None:
    """Raise UsageError for options that are not supported on a cluster."""
    refused = {"--prune": options.prune, "--unpack": options.unpack, "--pack or --tar": packed}
    wrong = [name for name, given in refused.items() if given]
    if wrong:
        raise UsageError(f"--cluster with {', '.join(wrong)}: not supported on a cluster: stage on one host")
