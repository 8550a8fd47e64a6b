"""Claims about copying data: how long and how much, and what bounds it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from flatout.logs.claims.verdict import Claim, judged, span, time_span
from flatout.logs.facts import FileFacts, Statement
from flatout.logs.quantities import Quantity
from flatout.logs.throughput import measured_epochs
from flatout.units import short

_COPY = re.compile(
    r"(?i)\b(?:cop(?:y|ied|ying)|stag(?:e|ed|ing)|download(?:ed|ing)?|transferr?(?:ed|ing)?|sync(?:ed|ing)?)\b"
)
_OF_LINE = re.compile(r"(?i)\b(?:peak\w*|max\w*|up to|limit\w*|link|line|network|bandwidth|rated|expected)\b[^,;.()]*$")
_DONE = re.compile(r"(?i)\b(?:copied|staged|downloaded|transferred|synced|took)\b")
_ROUNDED = 0.1  # a size, a time and a rate, each as people round it, and GB for GiB
SLOW_BYTES_S = 20e6  # a link of the last decade gives several times that
SLOW_FILES_S = 200


@dataclass(frozen=True)
class Copy:
    """A copy that was done or is planned."""

    statement: Statement
    seconds: Quantity
    bytes: Quantity | None
    files: Quantity | None


def _copies(facts: FileFacts, done: bool) -> list[Copy]:
    found = []
    for one in facts.statements:
        seconds = next(iter(one.all("s")), None)
        if seconds is None or not _COPY.search(one.said) or bool(_DONE.search(one.said)) is not done:
            continue
        bytes_, files = next(iter(one.all("bytes")), None), next(iter([*one.all("files"), *one.all("images")]), None)
        if bytes_ or files:
            found.append(Copy(one, seconds, bytes_, files))
    return found


def copied(facts: FileFacts) -> Copy | None:
    """The first copy that the text says was done."""
    return next(iter(_copies(facts, done=True)), None)


def copy_rate(facts: FileFacts, _: list[FileFacts]) -> list[Claim]:
    """Files/s and bytes/s of a copy: few of both mean one request after the other."""
    copy = copied(facts)
    if copy is None or copy.bytes is None or copy.seconds.low <= 0:
        return []
    bytes_s = copy.bytes.low / copy.seconds.low
    said, found = f"{copy.bytes.text} in {copy.seconds.text}", f"{short(bytes_s / 1e6, 2)} MB/s"
    stated = [one for one in copy.statement.all("byte_rate") if not _OF_LINE.search(copy.statement.said, 0, one.start)]
    if stated and bytes_s > 0:
        words = (f"{said} at {stated[0].text}", f"it is {found}")
        sources = (copy.statement.source,)
        compared = judged("copy_rate", (stated[0].low, stated[0].high), (bytes_s,) * 2, words, sources, _ROUNDED)
        if compared.verdict == "off" or copy.files is None:
            return [compared]
    if copy.files is None:
        return []
    files_s = copy.files.low / copy.seconds.low
    found = f"{files_s:.0f} files/s, {found}"
    if bytes_s < SLOW_BYTES_S and files_s < SLOW_FILES_S:
        found += ": bound by requests, one after the other; parallel ones (`flatout stage`) come near the line's rate"
        return [Claim("copy_rate", "off", said, found, (copy.statement.source,))]
    return [Claim("copy_rate", "consistent", said, found, (copy.statement.source,))]


def copy_as_planned(facts: FileFacts, others: list[FileFacts]) -> list[Claim]:
    """What a copy was expected to need and to give, against the copy that another file reports."""
    planned = next(iter(_copies(facts, done=False)), None)
    measured = next(((other, copy) for other in others if (copy := copied(other)) is not None), None)
    if planned is None or measured is None:
        return []
    other, copy = measured
    sources = (planned.statement.source, copy.statement.source)
    words = (f"the copy takes {planned.seconds.text}", f"it took {copy.seconds.text}")
    said, took = planned.seconds, copy.seconds
    claims = [judged("copy_duration", (said.low, said.high), (took.low, took.high), words, sources)]
    if planned.bytes and copy.bytes:
        words = (f"{planned.bytes.text} to copy", f"they were {copy.bytes.text}")
        claims.append(judged("copy_size", (planned.bytes.low,) * 2, (copy.bytes.low,) * 2, words, sources))
    factor = next(iter(planned.statement.speedups), None)
    old, new = measured_epochs(facts), measured_epochs(other)
    if factor and len(old) > 1 and new:
        after = sorted(one.seconds or 0.0 for one in new)[len(new) // 2]
        warm = sorted((one.seconds or 0.0) / after for one in old[1:])
        cold = (old[0].seconds or 0.0) / after
        found = f"measured {span(warm[0], warm[-1], 'x', 2)} against warm epochs, {cold:.1f}x against the cold one"
        found += f" ({time_span(after, after)} an epoch after it)"
        compared = (planned.statement.source, old[-1].source, new[0].source)
        claims.append(
            judged(
                "copy_gain",
                (factor.low, factor.high),
                (warm[0], warm[-1]),
                (f"{factor.text} by copying", found),
                compared,
            )
        )
    return claims
