"""What the page of a comparison shows: two ledgers on one scale, their difference, and how long steps take."""

from __future__ import annotations

from typing import Any

import numpy as np

from flatout.compare.comparison import AMOUNT, Comparison
from flatout.compare.speed import Speed
from flatout.measure.account_ids import LABELS
from flatout.report.comparison import notes, to_dict, verdict
from flatout.results import Account
from flatout.terminal_text import shell_line

BINS = 80  # of the durations of steps
Values = dict[str, Any]


def comparison_data(comparison: Comparison) -> Values:
    """Everything that the page of a comparison shows."""
    a, b = comparison.shown
    return {
        "verdict": verdict(comparison),
        "notes": notes(comparison),
        "result": to_dict(comparison),
        "unit": a.unit,
        "amount": AMOUNT,
        "sides": {"a": _side(a), "b": _side(b)},
        "rows": _rows(comparison),
        "steps": _distributions(a, b),
    }


def _rows(comparison: Comparison) -> list[Values]:
    """Every account of either side, and what no account explains: they add up to the whole of each."""
    shown = comparison.every_account()
    named = [(account, LABELS[account], a_s, b_s) for account, a_s, b_s in shown]
    named.append(("unaccounted", "unaccounted", *comparison.rest(shown)))
    return [{"id": id, "label": label, "a_s": a_s, "b_s": b_s} for id, label, a_s, b_s in named]


def _side(speed: Speed) -> Values:
    """The ledger of a run, in seconds for ``AMOUNT`` samples."""
    ledger = speed.ledger
    whole_s = AMOUNT / speed.rate
    scale = whole_s / ledger.window_s
    accounts = [_account(account, scale) for account in ledger.accounts]
    if ledger.unaccounted_s > 0:
        accounts.append({"id": "unaccounted", "label": "unaccounted", "seconds": ledger.unaccounted_s * scale})
    return {
        "run": speed.run,
        "command": shell_line(speed.command),
        "whole_s": whole_s,
        "accounts": accounts,
        "steps": len(speed.steps_s),
    }


def _account(account: Account, scale: float) -> Values:
    children = [_account(child, scale) for child in account.children]
    return {"id": account.id, "label": account.label, "seconds": account.seconds * scale, "children": children}


def _distributions(a: Speed, b: Speed) -> Values:
    """Shares of the steps in bins whose edges grow by one factor, so that steps of any length can be seen."""
    both = np.concatenate([a.steps_s, b.steps_s])
    positive = both[both > 0]
    low, high = (float(positive.min()), float(positive.max())) if len(positive) else (1e-3, 1.0)
    low, high = 0.95 * low, 1.05 * high
    edges = np.geomspace(low, high, BINS + 1)
    shares = {
        name: (np.histogram(side.steps_s, edges)[0] / max(len(side.steps_s), 1)).tolist()
        for name, side in (("a", a), ("b", b))
    }
    return {"edges": [low, high], **shares}
