"""Which batch size to measure next: double, halve, refine, repeat. No run is made here."""

from __future__ import annotations

from collections.abc import Sequence

from flatout.trials.batch_sizes import WITHIN, SizeRuns
from flatout.trials.outcome import GUARDED, OUT_OF_MEMORY
from flatout.trials.sequential import MOST_PAIRS

_FLAT = 2  # doublings in a row that bring less than WITHIN end the way up
_FINEST = 8  # sizes between two neighbours are looked at down to an eighth of the lower one
_ROUND_FROM, _ROUND_TO = 32, 8  # from here on, sizes are multiples: matrix units of GPUs work in them
_MEMORY = (OUT_OF_MEMORY, GUARDED)


def counted(sizes: Sequence[SizeRuns]) -> list[SizeRuns]:
    """Those with a run that counts, smallest first."""
    return sorted((one for one in sizes if one.runs and one.failed is None), key=lambda one: one.size)


def best_of(sizes: Sequence[SizeRuns]) -> SizeRuns:
    """The fastest of those that count; there must be one."""
    return max(counted(sizes), key=lambda one: one.rate)


def knee_of(sizes: Sequence[SizeRuns]) -> SizeRuns:
    """The smallest that lacks at most WITHIN of the best speed; there must be one that counts."""
    best = best_of(sizes)
    return next(one for one in counted(sizes) if one.rate >= (1 - WITHIN) * best.rate)


def next_larger(sizes: Sequence[SizeRuns], most: int | None) -> int | None:
    """Twice the largest size; None: samples/s have stopped growing, or the largest failed or is the most allowed."""
    measured = counted(sizes)
    largest = measured[-1]
    if any(one.size > largest.size for one in sizes) or flat_doublings(sizes) >= _FLAT:
        return None
    larger = 2 * largest.size
    if most is not None and larger > most:
        return most if most > largest.size else None
    return larger


def flat_doublings(sizes: Sequence[SizeRuns]) -> int:
    """Sizes at the upper end that are not faster than the best of the smaller ones by more than WITHIN."""
    measured = counted(sizes)
    count = 0
    for place in range(len(measured) - 1, 0, -1):
        before = max(one.rate for one in measured[:place])
        if measured[place].rate > (1 + WITHIN) * before:
            break
        count += 1
    return count


def next_smaller(sizes: Sequence[SizeRuns], least: int) -> int | None:
    """Half the smallest size, while the smallest is as fast as the best; None: a smaller one would be slower."""
    smallest = counted(sizes)[0]
    if any(one.size < smallest.size for one in sizes) or knee_of(sizes) is not smallest:
        return None
    return smallest.size // 2 if smallest.size // 2 >= least else None


def next_between(sizes: Sequence[SizeRuns]) -> int | None:
    """A size between the knee and the next smaller one, or between the largest and the one that needs more memory."""
    measured, looked = counted(sizes), {one.size for one in sizes}
    knee = knee_of(sizes)
    above = [one for one in sizes if one.size > measured[-1].size and one.outcome in _MEMORY]
    # Only where samples/s still grow does it matter how much fits.
    if above and not flat_doublings(sizes):
        found = _between(measured[-1].size, min(one.size for one in above))
        if found is not None and found not in looked:
            return found
    below = [one.size for one in measured if one.size < knee.size]
    if below:
        # Once: half way is as exact as the speeds are.
        inside = [one for one in looked if below[-1] < one < knee.size]
        ratio = knee.size / below[-1]
        found = _between(below[-1], knee.size) if ratio > 1.6 and not inside else None
        return found if found not in looked else None
    return None


def _between(low: int, high: int) -> int | None:
    middle = (low + high) // 2
    if middle >= _ROUND_FROM:
        middle -= middle % _ROUND_TO
    if middle <= low or (high - low) * _FINEST < 2 * low:
        return None
    return middle


def unclear(sizes: Sequence[SizeRuns]) -> list[SizeRuns]:
    """Sizes of which more runs would tell which is the knee: the knee, those below it in doubt, and the best.

    In doubt: the interval of its speed over the best's holds 1 - WITHIN. Those above the knee do not matter.
    """
    best, knee = best_of(sizes), knee_of(sizes)
    doubtful = [
        one
        for one in counted(sizes)
        if one.size <= knee.size and one is not best and in_doubt(one, best) and len(one.runs) < MOST_PAIRS
    ]
    return [*doubtful, best] if doubtful else []


def in_doubt(one: SizeRuns, best: SizeRuns) -> bool:
    """True if the runs do not tell on which side of 1 - WITHIN its speed over the best's is."""
    ratio = one.against(best)
    return ratio is None or ratio.low < 1 - WITHIN < ratio.high
