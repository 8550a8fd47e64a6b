"""The result of a comparison: for people as lines of at most 80 columns, for scripts as JSON."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flatout.compare.ratio import Ratio
from flatout.compare.speed import Speed
from flatout.measure.accounts import ACCOUNTS, LABELS
from flatout.report.layout import shorten_middle, wrap
from flatout.terminal_text import one_line
from flatout.units import duration, factor, percent

WIDTH = 80
# Accounts that differ by less than this share of A's time are left out.
_WORTH_SHOWING = 0.01
_AMOUNT = 1000  # samples, or steps, that accounts are compared over


@dataclass(frozen=True)
class Comparison:
    """A and B, and what they are to each other.

    Attributes:
        a: runs of A; the middle one by rate speaks for it.
        b: runs of B.
        ratio: B over A.
        allowed: the share by which B may be slower; None: not asked.
        interrupted: fewer pairs than asked for, since Ctrl-C was pressed.
    """

    a: Sequence[Speed]
    b: Sequence[Speed]
    ratio: Ratio
    allowed: float | None = None
    interrupted: bool = False

    @property
    def fails(self) -> bool:
        """Whether B is slower than was allowed."""
        return self.allowed is not None and self.ratio.slower_than(self.allowed)

    def accounts(self) -> list[tuple[str, float, float]]:
        """(account, seconds of A, seconds of B) over 1,000 samples, largest difference first."""
        a, b = middle(self.a), middle(self.b)
        rows = [(id, a.seconds_of(id, _AMOUNT), b.seconds_of(id, _AMOUNT)) for id in ACCOUNTS]
        least = _WORTH_SHOWING * _AMOUNT / a.rate
        return sorted((row for row in rows if abs(row[2] - row[1]) >= least), key=lambda row: -abs(row[2] - row[1]))

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "a": _side(self.a),
            "b": _side(self.b),
            "unit": self.a[0].unit,
            "ratio": {
                "factor": self.ratio.factor,
                "low": self.ratio.low,
                "high": self.ratio.high,
                "pairs": self.ratio.pairs,
                "resolved": self.ratio.resolved,
            },
            "accounts": [
                {"id": id, f"a_s_per_{_AMOUNT}": a_s, f"b_s_per_{_AMOUNT}": b_s} for id, a_s, b_s in self.accounts()
            ],
            "allowed_loss": self.allowed,
            "fails": self.fails,
            "interrupted": self.interrupted,
        }

    def lines(self) -> list[str]:
        """For a terminal."""
        a, b = middle(self.a), middle(self.b)
        head = [
            self.verdict(),
            "",
            f"  A  {_command(a)}",
            f"  B  {_command(b)}",
            "",
            f"  {'':34}{'A':>12}{'B':>12}",
            f"  {a.unit:34}{a.rate:12,.1f}{b.rate:12,.1f}   {factor(self.ratio.factor)}",
            f"  {'median step':34}{duration(a.ledger.steps.median_s):>12}{duration(b.ledger.steps.median_s):>12}",
            f"  {'slowest twentieth of the steps':34}"
            f"{'> ' + duration(a.ledger.steps.p95_s):>12}{'> ' + duration(b.ledger.steps.p95_s):>12}",
        ]
        rows = [
            f"  {LABELS[id]:34}{duration(a_s):>12}{duration(b_s):>12}   {_signed(b_s - a_s)}"
            for id, a_s, b_s in self.accounts()
        ]
        per = a.unit.partition("/")[0]
        differences = ["", f"Where the difference is: seconds for {_AMOUNT:,} {per}", "", *rows] if rows else []
        notes = [line for note in self.notes() for line in wrap(note, WIDTH)]
        return [*head, *differences, "", *notes]

    def verdict(self) -> str:
        """One sentence."""
        ratio = self.ratio
        interval = f"{factor(ratio.low, like=ratio.factor)} to {factor(ratio.high, like=ratio.factor)}"
        if not ratio.resolved:
            return f"No difference is resolved: B runs at {factor(ratio.factor)} of A ({interval})."
        if ratio.factor > 1:
            return f"B is faster: {factor(ratio.factor)} ({interval})."
        return f"B is slower: {factor(ratio.factor)} of A ({interval})."

    def notes(self) -> list[str]:
        """What to know when reading the figures."""
        a, b = middle(self.a), middle(self.b)
        pairs = self.ratio.pairs
        measured = (
            "The interval (90%) is of single runs: what differs from run to run is assumed. Give two "
            "commands instead, and they are run in turn."
            if pairs == 1
            else f"The interval (90%) is of {pairs} pairs of runs, taken in turn; shown are the middle ones."
        )
        notes = [measured]
        if self.interrupted:
            notes.append("Ended early by Ctrl-C.")
        if a.batch and b.batch and abs(a.batch / b.batch - 1) > 0.01:
            notes.append(f"Steps have {a.batch:.4g} and {b.batch:.4g} samples: compare samples/s, not steps.")
        notes.append("Losses are not compared here.")
        if self.allowed is not None:
            word = "is slower by more than" if self.fails else "is not shown to be slower by more than"
            notes.append(f"B {word} the {percent(self.allowed)} that --fail-if-slower allows.")
        return notes


def middle(speeds: Sequence[Speed]) -> Speed:
    """The run with the median rate; the lower one of two."""
    return sorted(speeds, key=lambda speed: speed.rate)[(len(speeds) - 1) // 2]


def _side(speeds: Sequence[Speed]) -> dict[str, Any]:
    chosen = middle(speeds)
    return {
        "command": list(chosen.command),
        "runs": [speed.run for speed in speeds],
        "rates": [speed.rate for speed in speeds],
        "rate": statistics.median(speed.rate for speed in speeds),
        "median_step_s": chosen.ledger.steps.median_s,
        "samples_per_step": chosen.batch,
    }


def _command(speed: Speed) -> str:
    text = " ".join(shlex.quote(word) for word in speed.command) or speed.run
    return shorten_middle(one_line(text), WIDTH - 5, "...")


def _signed(seconds: float) -> str:
    return f"{'+' if seconds >= 0 else '-'}{duration(abs(seconds))}"
