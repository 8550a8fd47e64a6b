"""A comparison as lines of at most 80 columns, and as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from flatout.compare.comparison import AMOUNT, Comparison
from flatout.compare.crowding import crowded
from flatout.compare.speed import Speed
from flatout.measure.account_ids import LABELS
from flatout.report.layout import short_command, wrap
from flatout.report.ratios import bounds
from flatout.terminal_text import one_line
from flatout.units import counted, duration, factor, percent

WIDTH = 80
REST = "all the rest"


def lines(comparison: Comparison) -> list[str]:
    """For a terminal."""
    a, b = comparison.shown
    head = [verdict(comparison), "", *_named("A", a), *_named("B", b), ""]
    measured, differences = figures(comparison)
    noted = [line for note in notes(comparison) for line in wrap(note, WIDTH)]
    return [*head, *measured, *differences, "", *noted]


def figures(comparison: Comparison) -> tuple[list[str], list[str]]:
    """A table of A and B, and one of the accounts in which they differ, empty if they do not."""
    a, b = comparison.shown
    # Of all pairs: the rate of one would be at odds with the factor.
    pairs = zip(comparison.a, comparison.b, strict=False)
    a_rate, b_rate = (statistics.geometric_mean(speed.rate for speed in side) for side in zip(*pairs, strict=True))
    measured = [
        f"  {'':34}{'A':>12}{'B':>12}",
        f"  {a.unit:34}{a_rate:12,.1f}{b_rate:12,.1f}   {factor(b_rate / a_rate)}",
        f"  {'median step':34}{duration(a.ledger.steps.median_s):>12}{duration(b.ledger.steps.median_s):>12}",
        f"  {'95th percentile of the steps':34}"
        f"{duration(a.ledger.steps.p95_s):>12}{duration(b.ledger.steps.p95_s):>12}",
    ]
    shown = comparison.accounts()
    named = [(LABELS[account], a_s, b_s) for account, a_s, b_s in shown]
    rows = [
        f"  {label:34}{duration(a_s):>12}{duration(b_s):>12}   {_signed(b_s - a_s)}"
        for label, a_s, b_s in [*named, (REST, *comparison.rest(shown))]
    ]
    per = a.unit.partition("/")[0]
    return measured, ["", f"Where the difference is: seconds for {AMOUNT:,} {per}", "", *rows] if shown else []


def verdict(comparison: Comparison) -> str:
    """One sentence."""
    ratio = comparison.ratio
    interval = bounds(ratio)
    if not ratio.resolved:
        return f"Indistinguishable at 90%: B runs at {factor(ratio.factor)} of A ({interval})."
    if ratio.factor > 1:
        return f"B is faster: {factor(ratio.factor)} ({interval})."
    return f"B is slower: {factor(ratio.factor)} of A ({interval})."


def notes(comparison: Comparison) -> list[str]:
    """Caveats for reading the figures."""
    (a, b), pairs = comparison.shown, comparison.ratio.pairs
    measured = (
        "The 90% interval is of single runs: how much runs differ from one another is taken from recorded trainings. "
        "Give two commands instead, and flatout runs them in turn."
        if pairs == 1
        else f"The 90% interval is of {pairs} pairs of runs, taken in turn; the rates are means over them, and "
        "the rest of the table shows the pair nearest to it."
    )
    found = [measured, *_failures(comparison)]
    if pairs > 1 and comparison.ratio.differing:
        found.append(f"{comparison.ratio.differing}.")
    if disturbed := comparison.ratio.disturbed:
        found.append(f"{disturbed[:1].upper()}{disturbed[1:]}.")
    if others := crowded([speed.contention for speed in (*comparison.a, *comparison.b)]):
        found.append(others)
    if others := evened_note(comparison):
        found.append(others)
    if comparison.interrupted:
        found.append(f"Ended early by {comparison.interrupted}.")
    if a.batch and b.batch and abs(a.batch / b.batch - 1) > 0.01:
        found.append(f"Steps have {a.batch:.4g} and {b.batch:.4g} samples: compare samples/s, not steps.")
    if a.threads and b.threads and a.threads != b.threads:
        found.append(f"A computes with {counted(a.threads, 'thread')}, B with {b.threads}.")
    found.append("Losses are not compared here.")
    if comparison.allowed is not None:
        word = "is slower by more than" if comparison.fails else "is not shown to be slower by more than"
        found.append(f"B {word} the {percent(comparison.allowed)} that --fail-if-slower allows.")
    return found


def evened_note(comparison: Comparison) -> str:
    """What is said of pauses that came in one run and not in the other; empty: none did."""
    names = sorted({name for speed in comparison.shown for name in speed.evened})
    if not names:
        return ""
    one = len(names) == 1
    return (
        f"{' and '.join(names).capitalize()} did not come as often in both runs of a pair: "
        f"{'it counts' if one else 'they count'} as often in both, as long as {'it' if one else 'they'} took."
    )


def to_dict(comparison: Comparison) -> dict[str, Any]:
    """For ``--json``."""
    ratio = comparison.ratio
    return {
        "a": _side(comparison.a, comparison.shown[0]),
        "b": _side(comparison.b, comparison.shown[1]),
        "unit": comparison.a[0].unit,
        "ratio": {
            "factor": ratio.factor,
            "low": ratio.low,
            "high": ratio.high,
            "pairs": ratio.pairs,
            "resolved": ratio.resolved,
            "between": ratio.between,
            "uneven": ratio.uneven,
        },
        "accounts": [
            {"id": account, f"a_s_per_{AMOUNT}": a_s, f"b_s_per_{AMOUNT}": b_s}
            for account, a_s, b_s in comparison.accounts()
        ],
        "allowed_loss": comparison.allowed,
        "fails": comparison.fails,
        "interrupted": comparison.interrupted is not None,
    }


def _side(speeds: Sequence[Speed], chosen: Speed) -> dict[str, Any]:
    return {
        "command": list(chosen.command),
        "runs": [speed.run for speed in speeds],
        "rates": [speed.rate for speed in speeds],
        "rate": statistics.median(speed.rate for speed in speeds),
        "median_step_s": chosen.ledger.steps.median_s,
        "samples_per_step": chosen.batch,
        "failures": [speed.failure for speed in speeds],
    }


def _failures(comparison: Comparison) -> list[str]:
    """A sentence for each run whose command failed."""
    return [
        f"{name}: {speed.failure} in {one_line(speed.run)}, whose figures are of what it did until then."
        for name, speeds in (("A", comparison.a), ("B", comparison.b))
        for speed in speeds
        if speed.failure is not None
    ]


def _named(side: str, speed: Speed) -> list[str]:
    """The run and its command: two runs of one command differ in their ids."""
    return [f"  {side}  {one_line(speed.run)}", f"     {_command(speed)}"]


def _command(speed: Speed) -> str:
    return short_command(speed.command, WIDTH - 5, "...") if speed.command else "-"


def _signed(seconds: float) -> str:
    return f"{'+' if seconds >= 0 else '-'}{duration(abs(seconds))}"
