"""Compares transferred bytes with whatever checksum the store offers, and records which one that was."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from flatout.stage.checksums import CRC_OF_PARTS, PART_BYTES, Checksum, checksum_of, running
from flatout.stage.sources.base import ObjectInfo, Source
from flatout.stage.sources.failures import Failure
from flatout.stage.sources.store_facts import KINDS, Facts, is_other_version

_ETAG = re.compile(r'"?([0-9a-f]{32})(?:-([1-9][0-9]{0,4}))?"?')
_MIB = 1 << 20
PARTS_UNKNOWN = "size only (its checksum of parts could not be compared)"
_USUAL_MIB = (8, 16, 5, 64, 50, 10, 15, 32, 100, 128, 20, 25, 200, 256, 500, 512)  # parts of usual clients


def md5_in(obj: ObjectInfo) -> str | None:
    """The MD5 in an ETag; None if the ETag cannot be the MD5 of all bytes."""
    found = _ETAG.fullmatch(obj.version)
    return found[1] if found and not found[2] else None


def parts_in(obj: ObjectInfo) -> int | None:
    """Number of parts an object was stored in, by its ETag; None if the ETag does not show it."""
    found = _ETAG.fullmatch(obj.version)
    return int(found[2]) if found and found[2] else None


class Verification:
    """Verification of one object whose bytes arrive in order.

    Attributes:
        verified: what they were compared with, once they were.
    """

    def __init__(self, obj: ObjectInfo, source: Source) -> None:
        self._obj, self._source = obj, source
        self._expected = md5_in(obj)
        self._one_part = parts_in(obj) == 1
        self._digest = hashlib.md5(usedforsecurity=False) if self._expected or self._one_part else None
        self.verified = source.unverified

    @property
    def has_checksum(self) -> bool:
        """True if a checksum is computed here."""
        return self._digest is not None

    def checksum(self) -> str:
        """The checksum of the bytes, in its recorded form."""
        assert self._digest is not None
        return f"md5:{self._digest.hexdigest()}"

    def passing(self, pieces: Iterable[memoryview]) -> Iterator[memoryview]:
        """Yield the pieces; raises Failure at the end if their size differs from the listed one."""
        received = 0
        for piece in pieces:
            received += len(piece)
            if self._digest is not None:
                self._digest.update(piece)
            yield piece
        if received != self._obj.size:
            raise Failure("changed", f"{self._obj.key}: {received} bytes came where {self._obj.size} were listed")

    def judge(self, file: str | bytes) -> None:
        """Compare, when all have passed.

        Args:
            file: the bytes, or the path of a file with them, in case the store offers another checksum.

        Raises:
            Failure: they differ from the store's.
        """
        if self._digest is None:
            return
        if self._digest.hexdigest() == self._expected:
            self.verified = "md5"
            return
        if self._one_part and f'"{hashlib.md5(self._digest.digest(), usedforsecurity=False).hexdigest()}-1"' == (
            self._obj.version
        ):
            self.verified = "md5 of parts"
            return
        facts = same_version(self._obj, self._source)
        if facts is None:
            if self._one_part:
                return
            raise _differs(self._obj)
        kind = next((kind for kind in KINDS if kind in facts.checksums and not facts.of_parts), None)
        if kind is not None:
            if _sum(kind, file) != facts.checksums[kind]:
                raise _differs(self._obj)
            self.verified = kind
        elif facts.has_md5:
            raise _differs(self._obj)


def same_version(obj: ObjectInfo, source: Source) -> Facts | None:
    """The store's report about the listed version; None if it cannot be queried. Raises Failure for another one."""
    facts = source.facts(obj)
    if facts is not None and is_other_version(facts.etag, obj.version):
        raise Failure("changed", f"{obj.key}: replaced at the source since it was listed")
    return facts


def _differs(obj: ObjectInfo) -> Failure:
    return Failure("mismatch", f"{obj.key}: the bytes do not match the store's checksum")


def _sum(kind: str, file: str | bytes) -> str:
    if isinstance(file, str):
        return checksum_of(file, kind).partition(":")[2]
    whole = running(kind)
    whole.update(file)
    return whole.digest().hex()


class Plan(NamedTuple):
    """Plan for verifying a large object whose parts arrive in any order.

    Attributes:
        checksum: to compute.
        expected: in its recorded form; None: nothing to compare with.
        is_certain: a mismatch means wrong bytes; else the store may have computed its own in another way.
        verified: label for bytes that match; with nothing expected, for all.
    """

    checksum: Checksum
    expected: str | None
    is_certain: bool
    verified: str


def plan_for(obj: ObjectInfo, source: Source, facts: Facts | None) -> Plan:
    """The cheapest plan that the store's report allows."""
    kinds = [kind for kind in KINDS if facts is not None and kind in facts.checksums]
    if facts is not None and kinds and not facts.of_parts and kinds[0].startswith("crc"):
        how = Checksum(kinds[0], PART_BYTES, whole=True)
        return Plan(how, f"{how.name}:{facts.checksums[kinds[0]]}", True, kinds[0])
    count = parts_in(obj) or (facts.parts if facts is not None else None)
    if count is not None:
        said = source.facts(obj, part=1) if facts is not None else None
        part_bytes = said.size if said is not None and said.parts == count and said.size else None
        is_certain = part_bytes is not None and _fits(obj.size, part_bytes, count)
        part_bytes = part_bytes if is_certain else usual_part(obj.size, count)
        if facts is not None and kinds and facts.of_parts and is_certain and part_bytes:
            how = Checksum(kinds[0], part_bytes)
            return Plan(how, f"{how.name}:{facts.checksums[kinds[0]]}", True, f"{kinds[0]} of parts")
        etag = _ETAG.fullmatch(obj.version)
        if part_bytes and etag and (facts is None or facts.has_md5):
            how = Checksum("md5", part_bytes)
            return Plan(how, f"{how.name}:{etag[1]}", is_certain, "md5 of parts")
    offers_parts = count is not None and (facts is None or facts.has_md5 or bool(kinds))
    return Plan(CRC_OF_PARTS, None, False, PARTS_UNKNOWN if offers_parts else source.unverified)


def usual_part(size: int, count: int) -> int | None:
    """Size of the parts in bytes, assuming a usual size; None if no usual size yields that many parts."""
    if count == 1:
        return size
    known = next((mib * _MIB for mib in _USUAL_MIB if _fits(size, mib * _MIB, count)), None)
    whole = -(-size // count // _MIB) * _MIB  # the smallest number of MiB that could be it
    return known or (whole if whole and _fits(size, whole, count) else None)


def _fits(size: int, part_bytes: int, count: int) -> bool:
    return part_bytes > 0 and -(-size // part_bytes) == count


def judge_parts(plan: Plan, found: str, obj: ObjectInfo, source: Source, file: str) -> str:
    """Verify a large file; returns a label of what it was compared with.

    Args:
        plan: plan by which the checksum was computed.
        found: the checksum of what was written.
        obj: the object.
        source: where it is.
        file: path of what was written.

    Raises:
        Failure: the file differs from the store's object.
    """
    if found == plan.expected:
        return plan.verified
    if plan.expected is None:
        return plan.verified
    if not plan.is_certain:  # the parts were of another size, or the ETag is made of something else
        better = plan_for(obj, source, same_version(obj, source))
        if better.expected is None:
            return better.verified
        if not better.is_certain:
            return PARTS_UNKNOWN
        if checksum_of(file, better.expected) == better.expected:
            return better.verified
    raise _differs(obj)
