"""Staging on all hosts of a Ray cluster: one listing, each object from the source once, by others if a host is lost."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from flatout.errors import StagingFailed, UsageError
from flatout.stage.cluster.host import ClusterHost, HostCounts
from flatout.stage.destination.safe_paths import refusal
from flatout.stage.selection import Selection, chosen_classes, selected
from flatout.stage.sources.base import ObjectInfo, Source, StoreOptions
from flatout.stage.sources.failures import Failure
from flatout.stage.transfer import Options
from flatout.units import size

SHARD, FULL = "shard", "full"
CHUNK_FILES = 256  # for all hosts together; bounds what is on the way
CHUNK_BYTES = 64 << 20  # that a host gives to others at a time
UNDER_WAY = 3  # chunks
TELL_EVERY_S = 10.0


@dataclass(frozen=True, kw_only=True)
class ClusterSummary:
    """How a staging on a cluster ended.

    Attributes:
        each: what each host has: SHARD or FULL.
        hosts: one a host that is left.
        lost: names of hosts that were lost on the way.
        listed: objects.
        moved: objects that another host brought than the one that was to, because that one was lost.
        refused: keys that cannot be files.
    """

    source: str
    each: str
    hosts: tuple[dict[str, Any], ...]
    lost: tuple[str, ...]
    listed: int
    listed_bytes: int
    moved: int
    refused: int
    failed: int
    seconds: float

    def as_json(self) -> dict[str, object]:
        """As plain values."""
        return asdict(self)


def owner(key: str, hosts: Sequence[str]) -> str:
    """The host that brings a key: rendezvous hashing, so that a lost host moves only its own keys.

    Thaler and Ravishankar, "A Name-Based Mapping Scheme for Rendezvous", 1996.
    """
    return max(hosts, key=lambda host: hashlib.blake2b(f"{host}\n{key}".encode(), digest_size=8).digest())


def stage_on_cluster(
    source: str,
    store: StoreOptions,
    origin: Source,
    destination: str,
    selection: Selection,
    options: Options,
    each: str,
    address: str = "auto",
    report: Callable[[str], None] = lambda line: None,
) -> ClusterSummary:
    """Stage on every host of a cluster.

    Args:
        source: address, which every host can reach with credentials of its own.
        store: how.
        origin: the same, opened here, for the listing.
        destination: folder on each host; ``{node}`` in it becomes the host's number.
        selection: what.
        options: how.
        each: SHARD: every host has its share of the files; FULL: every host has all of them.
        address: of the cluster, as Ray takes it.
        report: told what is worth a line.

    Raises:
        UsageError: there is no such cluster, or a host cannot write there.
        StagingFailed: no host is left, or one has no room.
    """
    import ray

    _check_address(address)
    # Ray's threads print what they think of lost hosts: not into the summary.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UsageError(
                f"--cluster {address}: no Ray cluster answers ({type(error).__name__}): start one with `ray start`"
            ) from None
        try:
            return _Cluster(source, store, origin, destination, selection, options, each, report).run()
        except Failure as failure:
            raise StagingFailed(f"{failure}: what is complete is kept; run the same command again") from None
        finally:
            ray.shutdown()


def _check_address(address: str) -> None:
    """Ray itself asks for minutes whether somebody is there."""
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--cluster {address}: no Ray cluster answers: {error}: give auto, or host:port as `ray start` prints it"
        ) from None


class _Cluster:
    def __init__(
        self,
        source: str,
        store: StoreOptions,
        origin: Source,
        destination: str,
        selection: Selection,
        options: Options,
        each: str,
        report: Callable[[str], None],
    ) -> None:
        import ray
        from ray.exceptions import RayActorError, RayTaskError

        self.ray: Any = ray
        self.gone, self.broken = RayActorError, RayTaskError
        self.origin, self.selection, self.each, self.report = origin, selection, each, report
        self.began = time.monotonic()
        self.classes = chosen_classes(origin, selection)
        self.hosts: dict[str, Any] = self._start(source, store, destination, options)
        self.everyone = list(self.hosts)
        self.lost: list[str] = []
        self.listed = self.listed_bytes = self.moved = self.refused = 0
        self.failed: set[str] = set()  # keys; each host that tried one counts it too

    def _start(self, source: str, store: StoreOptions, destination: str, options: Options) -> dict[str, Any]:
        """One actor a living node, by "node number: address"."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        nodes = sorted(
            (node for node in self.ray.nodes() if node["Alive"]),
            key=lambda node: (node["NodeManagerAddress"], node["NodeName"], node["NodeID"]),
        )
        remote = self.ray.remote(num_cpus=0, max_restarts=0)(ClusterHost)
        found: dict[str, Any] = {}
        for number, node in enumerate(nodes):
            where = destination.replace("{node}", str(number))
            place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            actor = remote.options(scheduling_strategy=place).remote(source, store, where, options, self.classes)
            found[f"{number}: {node['NodeManagerAddress']}"] = actor
        if (
            len(found) > 1
            and "{node}" not in destination
            and len({n["NodeManagerAddress"] for n in nodes}) < len(nodes)
        ):
            raise UsageError(f"{destination}: several nodes share one machine: write {{node}} into the folder's name")
        for name, actor in found.items():
            try:
                self.ray.get(actor.name.remote())
            except self.gone as error:
                raise UsageError(f"host {name}: {_cause(error)}") from None
        return found

    def run(self) -> ClusterSummary:
        """Stage, and say how it went."""
        while True:
            before = len(self.lost)
            self._pass()
            for name in list(self.hosts):  # one may be lost when its share is done
                self._ask(name, "name")
            if len(self.lost) == before:
                break
            # What was on a lost host is gone with it: see that all of it is on the others.
            self.report("looking again at everything, since a host was lost")
        counts: list[HostCounts] = []
        for name in list(self.hosts):
            found = self._ask(name, "finish")
            if found is not None:
                counts.append(found)
        if len(self.lost) > before:
            raise StagingFailed(
                f"host {self.lost[-1]} was lost at the end: the same command brings its files elsewhere"
            )
        return ClusterSummary(
            source=self.origin.address,
            each=self.each,
            hosts=tuple(count._asdict() for count in counts),
            lost=tuple(self.lost),
            listed=self.listed,
            listed_bytes=self.listed_bytes,
            moved=self.moved,
            refused=self.refused,
            failed=len(self.failed) + len(self.origin.unlisted),
            seconds=time.monotonic() - self.began,
        )

    def _pass(self) -> None:
        """Go through the listing once."""
        self.listed = self.listed_bytes = self.refused = self.moved = 0
        self.failed.clear()
        self.origin.skipped.clear()
        told = time.monotonic()
        entries = self._listed()
        while chunk := list(islice(entries, CHUNK_FILES * len(self._living()) * UNDER_WAY)):
            has = self._bring(chunk)
            if self.each == FULL:
                self._spread(chunk, has)
            if time.monotonic() - told > TELL_EVERY_S:
                told = time.monotonic()
                self.report(f"{self.listed:,} files, {size(self.listed_bytes)}, on {len(self.hosts)} hosts so far")

    def _listed(self) -> Iterator[ObjectInfo]:
        for entry in selected(self.origin, self.selection, self.classes):
            if refusal(entry.key) is not None:
                self.refused += 1
                continue
            self.listed += 1
            self.listed_bytes += entry.size
            yield entry
        self.refused += self.origin.skipped.count
        if not self.listed and not self.refused and not self.origin.unlisted:
            raise UsageError(self.origin.nothing_found())

    def _bring(self, entries: Sequence[ObjectInfo]) -> dict[str, list[ObjectInfo]]:
        """From the source, each by its owner; where that is lost, by the next one. Gives who has what now."""
        has: dict[str, list[ObjectInfo]] = defaultdict(list)
        waiting = list(entries)
        while waiting:
            shares: dict[str, list[ObjectInfo]] = defaultdict(list)
            for entry in waiting:
                shares[owner(entry.key, self._living())].append(entry)
            asked = {
                name: [
                    self.hosts[name].bring.remote([tuple(entry) for entry in share[start : start + CHUNK_FILES]])
                    for start in range(0, len(share), CHUNK_FILES)
                ]
                for name, share in shares.items()
            }
            waiting = []
            for name, answers in asked.items():
                found = [self._answer(name, answer) for answer in answers]
                if None in found:
                    # What it had before is lost, too, but only what is wanted now is brought again here.
                    waiting += shares[name]
                else:
                    has[name] += [ObjectInfo(*entry) for part in found for entry in part]
        brought = {entry.key for found in has.values() for entry in found}
        self.failed |= {entry.key for entry in entries if entry.key not in brought}
        if self.lost:
            self.moved += sum(owner(entry.key, self.everyone) in self.lost for entry in entries)
        return has

    def _spread(self, entries: Sequence[ObjectInfo], has: dict[str, list[ObjectInfo]]) -> None:
        """To every host what it lacks, from those that have it."""
        missing: dict[str, set[str]] = {}
        asked = {name: self.hosts[name].missing.remote([tuple(e) for e in entries]) for name in self._living()}
        for name, answer in asked.items():
            found = self._answer(name, answer)
            missing[name] = {entry[0] for entry in found or ()}
        for giver, theirs in has.items():
            for part in _parts([entry for entry in theirs if any(entry.key in keys for keys in missing.values())]):
                if giver not in self.hosts:
                    self._again(part)
                    break
                wanted = [entry.key for entry in part]
                pieces = self.hosts[giver].give.remote(wanted)
                takers = [name for name in self._living() if name != giver and missing[name] & set(wanted)]
                answers = {name: self.hosts[name].take.remote(pieces) for name in takers}
                for name, answer in answers.items():
                    arrived = self._answer(name, answer, part_of=giver)
                    missing[name] -= set(arrived or ())
        # What its owner could not have from the source is not asked for once more by every other host.
        left = [
            entry
            for entry in entries
            if entry.key not in self.failed and any(entry.key in missing[name] for name in self._living())
        ]
        if left:
            self._again(left, missing)

    def _again(self, entries: Sequence[ObjectInfo], missing: dict[str, set[str]] | None = None) -> None:
        """From the source after all: who had these is lost, or they did not arrive whole."""
        for name in self._living():
            lacking = [tuple(e) for e in entries if missing is None or e.key in missing[name]]
            if lacking:
                found = self._answer(name, self.hosts[name].bring.remote(lacking))
                self.moved += len(lacking)
                if found is not None:
                    self.failed |= {str(entry[0]) for entry in lacking} - {str(entry[0]) for entry in found}

    def _ask(self, name: str, method: str) -> Any:
        return self._answer(name, getattr(self.hosts[name], method).remote())

    def _answer(self, name: str, answer: Any, part_of: str | None = None) -> Any:
        """What a host says; None when it is lost (or the host that its argument comes from)."""
        try:
            return self.ray.get(answer)
        except self.gone:
            self._lose(name)
        except self.ray.exceptions.ObjectLostError:
            self._lose(part_of or name)
        except self.broken as error:
            if part_of is not None and isinstance(error.cause, self.gone | self.ray.exceptions.ObjectLostError):
                self._lose(part_of)
                return None
            raise StagingFailed(f"host {name}: {_cause(error)}: what is complete is kept") from None
        return None

    def _lose(self, name: str) -> None:
        if name in self.hosts:
            del self.hosts[name]
            self.lost.append(name)
            self.report(f"host {name} is lost: others bring what it was to bring")

    def _living(self) -> list[str]:
        if not self.hosts:
            raise StagingFailed("all hosts were lost: what is complete on them is kept")
        return list(self.hosts)


def _parts(entries: Sequence[ObjectInfo]) -> Iterator[list[ObjectInfo]]:
    """Pieces of at most CHUNK_BYTES, or of one file."""
    part: list[ObjectInfo] = []
    total = 0
    for entry in entries:
        if part and total + entry.size > CHUNK_BYTES:
            yield part
            part, total = [], 0
        part.append(entry)
        total += entry.size
    if part:
        yield part


def _cause(error: BaseException) -> str:
    """The last line of a remote error: the exception itself."""
    lines = [line.strip() for line in str(getattr(error, "cause", None) or error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__


def check_combination(options: Options, packed: bool) -> None:
    """Raise UsageError for what cannot be done on a cluster."""
    refused = {"--prune": options.prune, "--unpack": options.unpack, "--pack or --tar": packed}
    wrong = [name for name, given in refused.items() if given]
    if wrong:
        raise UsageError(f"--cluster with {', '.join(wrong)}: not done on a cluster; stage on one host")
