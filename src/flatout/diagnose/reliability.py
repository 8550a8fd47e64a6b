"""How often a first cause was the fault, by its kind: the most that its confidence may say.

Counted on the fifth to the eleventh set of scripts by people who had not seen the rules, at first sight
(docs/measurements/diagnosis-unseen-eleventh.md). What the rules themselves stated did not predict it; the kind did.
Most first causes name a mechanism, and were right on 57 of 61.
"""

from __future__ import annotations

# Facts that a more specific fault brings about, too: such as workers that are missing where one call takes the time.
BROAD = frozenset(
    {
        "main_process_work",
        "no_workers",
        "page_faults",
        "sample_skew",
        "small_batch",
        "too_few_threads",
        "too_many_threads",
    }
)
# Work that has to be done, if it is not done in vain.
_NEEDED = frozenset({"compute_bound", "cpu_transform"})
_BROAD_RIGHT, _BROAD_SEEN = 7, 24
_NEEDED_RIGHT, _NEEDED_SEEN = 18, 25


def most_confidence(cause: str) -> float:
    """The mean of what is known of the share of right ones (Jeffreys); 1 for a kind that was nearly always right."""
    if cause in BROAD:
        return round((_BROAD_RIGHT + 0.5) / (_BROAD_SEEN + 1), 2)
    return round((_NEEDED_RIGHT + 0.5) / (_NEEDED_SEEN + 1), 2) if cause in _NEEDED else 1.0
