"""The outcome of a try as lines of at most 80 columns, and as JSON."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Any

from flatout.compare.comparison import AMOUNT, Comparison
from flatout.measure.thresholds import NOISE_SHARE
from flatout.report.comparison import evened_note, figures
from flatout.report.layout import left, right, shorten_middle, wrap
from flatout.report.ratios import bounds, faster
from flatout.terminal_text import one_line
from flatout.trials.try_result import (
    DIFFERS,
    DIVERGED,
    NO_GAIN,
    PROVED,
    SLOWER,
    UNCONFIRMED,
    UNMEASURED,
    Judged,
    Memory,
    TryResult,
)
from flatout.units import counted, duration, factor, size

WIDTH = 80
_TITLE = 50  # columns of a candidate's title within a sentence
SCHEMA = 1
_WORDS = {
    PROVED: "proved",
    DIFFERS: "other training",
    UNCONFIRMED: "not confirmed",
    NO_GAIN: "no gain",
    SLOWER: "slower",
    DIVERGED: "breaks the training",
    UNMEASURED: "not measured",
    "oom": "out of memory",
    "guarded": "ended by a guard",
    "failed": "breaks the training",
    "refused": "has no effect",
    "too_short": "too few steps",
}


def lines(tried: TryResult) -> list[str]:
    """For a terminal."""
    best = tried.best
    text = [*_wrapped(f"{verdict(best, several=len(tried.candidates) > 1)} {tried.crowded}"), ""]
    if len(tried.candidates) > 1:
        text += [*_ranking(tried), ""]
    text += _detail(tried, best)
    for one in tried.candidates[1:]:
        text += [*_wrapped(verdict(one, several=True)), *_printed(one), ""]
    return [one_line(line) for line in (*text, *_wrapped(_notes(tried)))]


def verdict(one: Judged, several: bool = False) -> str:
    """One sentence on one candidate."""
    head = f"{shorten_middle(one.title, _TITLE, '...')}: " if several else ""
    ratio = one.ratio
    if ratio is None:
        return f"{head}Not proved: {'' if one.outcome == UNMEASURED else 'it '}{one.why}."
    span = f"{bounds(ratio)}, 90% interval"
    measured = f"{factor(ratio.factor)} ({span}, {counted(ratio.pairs, 'pair')})"
    if one.outcome == PROVED:
        compared = f": {one.losses.text}" if one.losses is not None else ""
        return f"{head}Proved: {faster(ratio)}, and it trains the same{compared}."
    if one.outcome == SLOWER:
        return f"{head}Slower: {measured} of the speed without it."
    if one.outcome == DIFFERS:
        return f"{head}Faster, {measured}, but {one.why}."
    if one.outcome == DIVERGED:
        return f"{head}It {one.why}."
    if one.outcome == UNCONFIRMED:
        return f"{head}Not confirmed: {measured}; {one.why}{f', and {one.stopped}' if one.stopped else ''}."
    return f"{head}Not proved: {measured} is no gain that clears {NOISE_SHARE:.0%}."


def _ranking(tried: TryResult) -> list[str]:
    text = [f"  {'':3}{'speed':>7}  {'90% interval':14}  {'verdict':20}candidate"]
    for place, one in enumerate(tried.candidates, 1):
        ratio = one.ratio
        speed = factor(ratio.factor) if ratio else "-"
        span = bounds(ratio) if ratio else ""
        head = f"  {place:<3}{speed:>7}  {span:14}  {_WORDS.get(one.outcome, one.outcome):20}"
        text.append(head + shorten_middle(one_line(one.title), WIDTH - len(head), "..."))
    return text


def _detail(tried: TryResult, one: Judged) -> list[str]:
    """What was measured of one candidate."""
    text = _named("A", _command(tried.command) + ("  (without the change)" if tried.taken_out else ""))
    text += _named("B", one.title)
    if one.files:
        text += _wrapped(f"changes {', '.join(one.files)}", 5)
    if one.comparison is None:
        return [*text, *_printed(one), ""]
    text += ["", *figures(one.comparison)[0], *_memory(one.memory)]
    if one.losses is not None:
        text += ["", *_wrapped(f"Losses: {one.losses.text}.")]
    moved = figures(one.comparison)[1]
    evened = evened_note(one.comparison)
    return [*text, *moved, *(["", *_wrapped(evened)] if evened else []), *_printed(one), ""]


def _named(side: str, text: str) -> list[str]:
    return [f"  {side}  {shorten_middle(one_line(text), WIDTH - 5, '...')}"]


def _command(words: tuple[str, ...]) -> str:
    return " ".join(shlex.quote(word) for word in words)


def _memory(memory: tuple[Memory, Memory]) -> list[str]:
    rows = (
        ("host memory, at most", memory[0].host_bytes, memory[1].host_bytes),
        ("GPU memory, at most", memory[0].device_bytes, memory[1].device_bytes),
    )
    return [
        f"  {left(label, 34)}{right(size(a), 12)}{right(size(b), 12)}"
        for label, a, b in rows
        if a is not None and b is not None
    ]


def _printed(one: Judged) -> list[str]:
    if not one.printed:
        return []
    return ["", "  It printed last:", *(f"    {shorten_middle(line, WIDTH - 4, '...')}" for line in one.printed)]


def _notes(tried: TryResult) -> str:
    log = f" The whole output of the runs: {tried.log}." if tried.log else ""
    out = " The files have the change already: A ran with it taken out." if tried.taken_out else ""
    pairs = tried.best.ratio.pairs if tried.best.ratio else 0
    shown = (
        f" The factor is of {pairs} pairs, the rates are means over them; all else is of the pair nearest to it."
        if pairs > 1
        else ""
    )
    return f"{tried.ended}{out}{log}{shown} {tried.isolation} It took {duration(tried.seconds)}.".strip()


def _wrapped(text: str, indent: int = 0) -> list[str]:
    return [" " * indent + line for line in wrap(text, WIDTH - indent)]


def to_dict(tried: TryResult) -> dict[str, Any]:
    """For ``--json``: docs/schema/try.schema.json."""
    return {
        "schema": SCHEMA,
        "command": list(tried.command),
        "verdict": verdict(tried.best, several=len(tried.candidates) > 1),
        "proved": tried.proved,
        "best": tried.best.title,
        "before": tried.before,
        "unit": tried.unit,
        "candidates": [_candidate(one, place) for place, one in enumerate(tried.candidates, 1)],
        "taken_out": tried.taken_out,
        "ended": tried.ended,
        "crowded": tried.crowded or None,
        "isolation": tried.isolation,
        "seconds": tried.seconds,
        "log": tried.log or None,
        "interrupted": tried.interrupted is not None,
    }


def _candidate(one: Judged, place: int) -> dict[str, Any]:
    without, with_it = one.memory
    return {
        "rank": place,
        "title": one.title,
        "outcome": one.outcome,
        "verdict": verdict(one),
        "why": one.why,
        "files": list(one.files),
        "ratio": asdict(one.ratio) if one.ratio else None,
        "rates": _rates(one.comparison),
        "same_training": one.same_training,
        "same_bits": one.losses.same_bits if one.losses else None,
        "loss": one.losses.text if one.losses else None,
        "accounts": [
            {"id": account, f"without_s_per_{AMOUNT}": a_s, f"with_s_per_{AMOUNT}": b_s}
            for account, a_s, b_s in (one.comparison.accounts() if one.comparison else ())
        ],
        "memory": {
            "host_bytes_without": without.host_bytes,
            "host_bytes_with": with_it.host_bytes,
            "device_bytes_without": without.device_bytes,
            "device_bytes_with": with_it.device_bytes,
        },
        "printed": list(one.printed),
        "stopped": one.stopped,
    }


def _rates(comparison: Comparison | None) -> dict[str, list[float]] | None:
    if comparison is None:
        return None
    return {"without": [one.rate for one in comparison.a], "with": [one.rate for one in comparison.b]}
