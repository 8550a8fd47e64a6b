"""Claims about speed-ups: products, bounds, options, and less work that is counted as more speed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from flatout.logs.claims.verdict import Claim, judged, span, time_span
from flatout.logs.facts import FileFacts, Statement
from flatout.logs.quantities import Quantity

_SUM = re.compile(
    r"(?i)\b(?:together|combined|total|altogether|overall|cumulative|summary|all in all|bottom line|product)\b"
)
_OPTION = re.compile(r"(?i)\boption\s+\w|\bplan\s+\w\b")
_WORK = re.compile(
    r"(?i)\b(?:folds?|epochs?|fewer|subset|half|less data|smaller (?:image|model|resolution)|early stop)\b"
)
_INSTEAD = re.compile(r"(?i)\binstead of|\bfewer|\bless\b|\bonly\b|\bhalf\b|\brather than|\bnot\b|->|→")
_BATCH = re.compile(r"(?i)\b(?:larger|bigger)\s+batch|\bbatch(?:[_ -]?size)?\b")
_WAITS = re.compile(r"(?i)\bwait\w*|\bidle\b|\bfor data\b|\bloading\b")
_COMPUTES = re.compile(r"(?i)\bGPU\b|\bcomput\w*")
_IDLE = re.compile(r"(?i)\b(?:GPU|utili[sz]ation)\b")
_MOSTLY = re.compile(r"(?i)\bmost of the time|\bmostly\b|\bidle\b")
# What stands before a number that nobody measured.
WISHED = re.compile(r"(?i)\b(?:target|goal|aim|would|could|should|expect\w*|limit|budget|require\w*|achieve)\b[^.;]*$")
_SHORTER, _HIGHER = ("s", "s_epoch", "s_step"), ("its", "sps")
_WORKERS = re.compile(r"(?i)\b(\d{1,4})\s+workers\b")
_CLAUSE = re.compile(r"[;,](?!\d)")


def factor_product(facts: FileFacts, _: list[FileFacts]) -> list[Claim]:
    """The listed factors, multiplied, against the factors that are said to sum them up."""
    listed: list[tuple[Statement, Quantity, str]] = []
    claims = []
    for one in facts.statements:
        factors = one.speedups
        if not factors or _OPTION.search(one.said) or one.phase:
            continue
        if not _SUM.search(one.said):
            listed += [(one, factor, _clause(one, factor)) for factor in factors]
            continue
        single = [entry for entry in listed if entry[1].low == entry[1].high]
        if len(single) < 3:
            continue
        product = math.prod(factor.low for _, factor, _ in single)
        said = factors[-1]
        terms = " x ".join(f"{factor.low:g}" for _, factor, _ in single)
        words = (f"{span(said.low, said.high, 'x', 1)} together", f"{terms} = {product:.2f}x")
        slack = 0.08 if said.low == said.high else 0.04
        sources = (one.source, single[0][0].source, single[-1][0].source)
        claims.append(judged("factor_product", (said.low, said.high), (product, product), words, sources, slack))
        claims += _work_apart(one, said, single)
    return claims


def _work_apart(one: Statement, said: Quantity, listed: list[tuple[Statement, Quantity, str]]) -> list[Claim]:
    """Split the factors into throughput and amount of work."""
    work = [factor.low for _, factor, clause in listed if _WORK.search(clause) and _INSTEAD.search(clause)]
    speed = [factor.low for _, factor, clause in listed if not (_WORK.search(clause) and _INSTEAD.search(clause))]
    if not work:
        return []
    faster, less = math.prod(speed), math.prod(work)
    found = f"{faster:.1f}x is throughput, {less:.0f}x is doing less work: training less is not training faster"
    off_by = said.mean / faster if faster > 0 else None
    return [
        Claim("throughput_and_work", "off", f"{said.text} faster", found, (one.source, listed[0][0].source), off_by)
    ]


def _clause(one: Statement, factor: Quantity) -> str:
    """The part of the line that a factor belongs to."""
    begins = [found.end() for found in _CLAUSE.finditer(one.said) if found.start() < factor.start]
    return one.said[(begins[-1] if begins else 0) : factor.end]


def step_parts(facts: FileFacts) -> tuple[Statement, tuple[float, float], tuple[float, float]] | None:
    """A line that divides a step: the line, the whole step, and the part that computes, seconds."""
    for one in facts.statements:
        if not (_WAITS.search(one.said) and _COMPUTES.search(one.said)):
            continue
        whole = next(iter(one.all("s_step")), None)
        parts = [q for q in one.all("s") if whole and q.high < whole.high]
        waits = _WAITS.search(one.said)
        computing = [q for q in parts if waits and q.start < waits.start()]
        if whole is not None and computing and computing[0].low > 0:
            return one, (whole.low, whole.high), (computing[0].low, computing[0].high)
    return None


def input_bound(facts: FileFacts) -> Statement | None:
    """A line that says that the device waits most of the time."""
    parts = step_parts(facts)
    if parts is not None and parts[2][1] < 0.5 * parts[1][0]:
        return parts[0]
    for one in facts.statements:
        idle = _IDLE.search(one.said) and _MOSTLY.search(one.said)
        if idle and any(q.low <= 10 for q in one.all("percent")):
            return one
    return None


def waiting_bound(facts: FileFacts, _: list[FileFacts]) -> list[Claim]:
    """No remedy of the input gives more than removing all waiting."""
    parts = step_parts(facts)
    if parts is None:
        return []
    line, whole, computing = parts
    low, high = whole[0] / computing[1], whole[1] / computing[0]
    bound = (
        f"removing all waiting gives {span(low, high, 'x', 0)} at most ({time_span(*whole)} / {time_span(*computing)})"
    )
    over = [(one, q) for one in facts.statements for q in one.speedups if q.high > high * 1.02]
    if not over:
        return [
            Claim("waiting_bound", "consistent", "no factor is above what all waiting costs", bound, (line.source,))
        ]
    return [
        Claim("waiting_bound", "off", f"{q.text}", bound, (one.source, line.source), q.high / high)
        for one, q in over[:5]
    ]


def more_workers(facts: FileFacts, _: list[FileFacts]) -> list[Claim]:
    """More workers give at most as many times the fetches, and at most all of the waiting."""
    parts, said = step_parts(facts), facts.settings.get("workers", ())
    claimed = {one.source.line for one in facts.statements if one.speedups}
    now = next((one.value for one in said if one.source.line not in claimed), 0)
    if parts is None or now < 1 or input_bound(facts) is None:
        return []
    line, whole, computing = parts
    waiting = whole[1] / computing[0]
    # A fetch takes a whole step if it runs beside the computing, and the rest of the step if it does not.
    of_one = whole[1] / (whole[1] - computing[1])
    claims = []
    for one in facts.statements:
        factor, count = next(iter(one.speedups), None), _WORKERS.search(one.said)
        if factor is None or count is None or int(count[1]) <= now or _SUM.search(one.said):
            continue
        times = int(count[1]) / now
        most = min(times * of_one, waiting)
        found = (
            f"at most {most:.2g}x: {count[1]} workers fetch at most {times:g} times what {now:g} did, and without any "
            f"waiting it would be {span(whole[0] / computing[1], waiting, 'x', 0)}"
        )
        off_by = factor.high / most if factor.high > 1.02 * most else None
        words = (f"{factor.text} by {count[1]} workers", found)
        claims.append(
            Claim("more_workers", "consistent" if off_by is None else "off", *words, (one.source, line.source), off_by)
        )
    return claims


def larger_batch(facts: FileFacts, _: list[FileFacts]) -> list[Claim]:
    """A larger batch is the same samples in fewer steps: no gain while the device waits for them."""
    waiting = input_bound(facts)
    claims = []
    for one in facts.statements:
        for factor in one.speedups:
            clause = _clause(one, factor)
            if not _BATCH.search(clause if len(one.speedups) > 1 else one.said) or _SUM.search(one.said):
                continue
            if re.search(r"(?i)\bworkers\b", clause):
                continue
            if waiting is None:
                found = (
                    "fewer steps count the same samples, and the log does not say what bounds a step: measure samples/s"
                )
                claims.append(Claim("larger_batch", "unknown", clause.strip(" -*"), found, (one.source,)))
            else:
                found = "about 1.0x: the device waits for samples, and a larger batch needs as many of them"
                sources = (one.source, waiting.source)
                claims.append(Claim("larger_batch", "off", clause.strip(" -*"), found, sources, factor.mean))
    return claims


def options(facts: FileFacts, _: list[FileFacts]) -> list[Claim]:
    """A factor and the duration that it should lead to, against the duration now."""
    claims = []
    for one in facts.statements:
        factor = next(iter(one.speedups), None)
        if factor is None:
            continue
        per_epoch = next(iter(one.all("s_epoch")), None)
        now = next((found for found in _durations_now(facts, one, per_epoch is not None)), None)
        times = [per_epoch] if per_epoch else [q for q in one.all("s") if now and q.low != now[0]]
        if now is None or not times or times[0].low <= 0:
            continue
        after = times[0]
        low, high = now[0] / after.high, now[0] / after.low
        found = f"{time_span(now[0], now[0])} / {time_span(after.low, after.high)} = {span(low, high, 'x')}"
        epochs = facts.setting("epochs")
        if per_epoch and epochs:
            found += (
                f"; {epochs.value:.0f} epochs take {time_span(after.low * epochs.value, after.high * epochs.value)}"
            )
        words = (f"{factor.text}, {after.text}", found)
        claims.append(judged("options", (factor.low, factor.high), (low, high), words, (one.source, now[1].source)))
    return claims


def _durations_now(facts: FileFacts, one: Statement, per_epoch: bool) -> Iterator[tuple[float, Statement]]:
    """The duration before any change: in the line itself ("instead of 26.7 days"), else of an epoch earlier on."""
    if not per_epoch:
        spoken = re.search(r"(?i)\b(?:instead of|down from|rather than|before)\b", one.said)
        for quantity in one.all("s"):
            if spoken and quantity.start > spoken.start():
                yield quantity.low, one
        return
    for other in facts.statements:
        if other.source.line < one.source.line and not other.speedups:
            for quantity in other.all("s_epoch"):
                if quantity.low == quantity.high and not WISHED.search(other.said, 0, quantity.start):
                    yield quantity.low, other


def table_rows(facts: FileFacts, _: list[FileFacts]) -> list[Claim]:
    """In a table with columns before and after, the factor in a row against its two numbers."""
    claims = []
    for before, after, rest in facts.rows:
        for factor in rest.speedups[:1]:
            pairs = [(old, new) for old in before.quantities for new in after.quantities if old.what == new.what]
            pairs = [
                (old, new) for old, new in pairs if old.what in (*_SHORTER, *_HIGHER) and min(old.low, new.low) > 0
            ]
            if not pairs:
                continue
            old, new = pairs[0]
            if old.what in _SHORTER:
                low, high = old.low / new.high, old.high / new.low
            else:
                low, high = new.low / old.high, new.high / old.low
            found = f"{old.text} to {new.text} is {span(low, high, 'x')}"
            words = (f"{rest.said.split(':')[0]}: {factor.text}", found)
            claims.append(judged("table_rows", (factor.low, factor.high), (low, high), words, (rest.source,), 0.06))
    return claims
