"""Claims about a speed-up whose epochs before and after it stand in the same text."""

from __future__ import annotations

import re

from flatout.logs.claims.copying import copied
from flatout.logs.claims.verdict import Claim, judged
from flatout.logs.facts import FileFacts
from flatout.logs.quantities import Quantity
from flatout.logs.throughput import measured_epochs
from flatout.units import duration

MOST_EPOCHS = 1e6
_MEASURED = ("s", "s_epoch", "s_step", "its", "sps")
_FROM = re.compile(r"(?i)\bfrom\s*$")
_SPREAD = re.compile(r"(?i)\b(?:rang|var)\w+\s+from\s*$")


def measured_speed_up(facts: FileFacts, _: list[FileFacts]) -> list[Claim]:
    """Factors said of a change whose epochs before and after it stand in the same text."""
    before, after = measured_epochs(facts, "before"), measured_epochs(facts, "after")
    if len(before) < 2 or not after:
        return []
    claims = []
    for one in facts.statements:
        count = next((q for q in one.all("epochs") if 1 <= q.low < MOST_EPOCHS), None)
        if one.phase == "before" and count and (said := next(iter(one.all("s")), None)):
            found_s = whole_time([e.seconds or 0 for e in before], int(count.low))
            words = (
                f"{count.low:.0f} epochs took {said.text}",
                f"by its own epochs {duration(found_s)}, if the later ones were like the last",
            )
            claims.append(
                judged("time_before", (said.low, said.high), (found_s, found_s), words, (one.source, before[0].source))
            )
        factor = next(iter(one.speedups), None)
        if factor and count and not one.phase:
            old = whole_time([e.seconds or 0 for e in before], int(count.low))
            new = whole_time([e.seconds or 0 for e in after], int(count.low))
            found = f"{duration(old)} / {duration(new)} = {old / new:.1f}x"
            found += _with_preparation(facts, old, new, before[-1].seconds or 0, after[-1].seconds or 0)
            sources = (one.source, before[-1].source, after[-1].source)
            claims.append(
                judged("measured_speed_up", (factor.low, factor.high), (old / new,) * 2, (factor.text, found), sources)
            )
    return claims


def stated_speed_up(facts: FileFacts, _: list[FileFacts]) -> list[Claim]:
    """The factor of "from 78 s to 39 s, a 3x speedup" against its two numbers."""
    claims = []
    for one in facts.statements:
        changes = [q for q in one.quantities if q.what in _MEASURED and 0 < q.low < q.high and _changes(one.said, q)]
        if len(changes) == 1 == len(one.speedups):
            change, factor = changes[0], one.speedups[0]
            if re.search(r"[;.]\s", one.said[min(change.end, factor.end) : max(change.start, factor.start)]):
                continue  # of another sentence
            real = change.high / change.low
            words = (f"{factor.text}, from {change.text}", f"the two numbers are {real:.2g}x apart")
            said = (real, real) if factor.low <= real <= factor.high else (factor.low, factor.high)
            claims.append(judged("stated_speed_up", said, (real, real), words, (one.source,), 0.06))
    return claims


def _changes(said: str, range_: Quantity) -> bool:
    return bool(_FROM.search(said, 0, range_.start)) and not _SPREAD.search(said, 0, range_.start)


def _with_preparation(facts: FileFacts, old: float, new: float, old_epoch: float, new_epoch: float) -> str:
    copy = copied(facts)
    if copy is None or old_epoch <= new_epoch:
        return ""
    seconds = copy.seconds.low
    pays = seconds / (old_epoch - new_epoch)
    longer = "longer" if seconds + new > old else "less"
    return f"; with the copy {duration(seconds + new)}, {longer} than before: it pays off after {pays:.0f} warm epochs"


def whole_time(epochs_s: list[float], count: int) -> float:
    """Time of ``count`` epochs, the later ones taken to be like the last known."""
    known = epochs_s[:count]
    return sum(known) + known[-1] * (count - len(known))
