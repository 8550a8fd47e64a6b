"""The result of a comparison: which runs, their ratio, and the accounts in which they differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flatout.compare.ratio import Ratio
from flatout.compare.speed import Speed
from flatout.errors import Interrupted
from flatout.measure.account_ids import ACCOUNTS

# Accounts that differ by less than this share of A's time are left out.
_WORTH_SHOWING = 0.01
AMOUNT = 1000  # samples, or steps, that accounts are compared over


@dataclass(frozen=True)
class Comparison:
    """A and B, and their ratio.

    Attributes:
        a: runs of A.
        b: runs of B, taken in turn with those of A.
        ratio: B over A.
        allowed: the share by which B may be slower; None: not asked.
        interrupted: by this, so that there are fewer pairs than requested; None: it was not.
    """

    a: Sequence[Speed]
    b: Sequence[Speed]
    ratio: Ratio
    allowed: float | None = None
    interrupted: Interrupted | None = None

    @property
    def fails(self) -> bool:
        """True if B is slower than allowed."""
        return self.allowed is not None and self.ratio.slower_than(self.allowed)

    @property
    def shown(self) -> tuple[Speed, Speed]:
        """The pair of runs whose own factor is nearest to that of all pairs: tables show it."""
        pairs = list(zip(self.a, self.b, strict=False))
        return min(pairs, key=lambda pair: abs(math.log(pair[1].rate / pair[0].rate / self.ratio.factor)))

    def every_account(self) -> list[tuple[str, float, float]]:
        """(account, seconds of A, seconds of B) over 1,000 samples; largest difference first."""
        a, b = self.shown
        rows = [(name, a.seconds_of(name, AMOUNT), b.seconds_of(name, AMOUNT)) for name in ACCOUNTS]
        return sorted((row for row in rows if row[1] or row[2]), key=lambda row: -abs(row[2] - row[1]))

    def accounts(self) -> list[tuple[str, float, float]]:
        """Those of :meth:`every_account` whose difference is worth a line."""
        least = _WORTH_SHOWING * AMOUNT / self.shown[0].rate
        return [row for row in self.every_account() if abs(row[2] - row[1]) >= least]

    def rest(self, shown: Sequence[tuple[str, float, float]]) -> tuple[float, float]:
        """Seconds of A and of B over 1,000 samples that are in none of the accounts ``shown``."""
        a_s, b_s = (AMOUNT / side.rate for side in self.shown)
        return max(a_s - sum(row[1] for row in shown), 0.0), max(b_s - sum(row[2] for row in shown), 0.0)
