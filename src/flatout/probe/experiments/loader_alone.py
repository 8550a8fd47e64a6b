"""The training's DataLoader alone, while nothing computes: new batches, then the same ones again.

The iterator is used up by it. Batches that lie ready when it begins do not count.
"""

# untested: only in trainings that flatout ends, which save no coverage

import itertools
from typing import Any

from ..contract import LOADER
from ..recorder import now
from . import asked_twice

NEW_NS, AGAIN_NS = 800_000_000, 600_000_000
PLANNED_NS = NEW_NS + AGAIN_NS
LEAST = 3  # batches; waited for longer than the times above if they are few
LONGEST_NS = 2_500_000_000


class TooFew(Exception):
    """Too few batches to measure a rate; the text says why."""


def run(iterator):
    """Take batches for one to three seconds.

    Returns:
        ``loader`` and ``again``: [batches, nanoseconds] of new batches, and of the same ones again where they can be
        made again; ``asked_twice``: samples of these that were made twice, and those that were the same both times.

    Raises:
        TooFew: new batches.
    """
    begun_ns = now()
    found: Any = {}
    sampler = _Noting(iterator._sampler_iter)
    iterator._sampler_iter = sampler
    new = _take(iterator, sampler, begun_ns + NEW_NS, begun_ns + LONGEST_NS)
    if new is None:
        left = "were left in the pass" if sampler.over else "came in %.2g s" % ((now() - begun_ns) / 1e9)
        raise TooFew("too few batches " + left)
    found[LOADER] = new
    if iterator._dataset_kind == 0 and sampler.taken:
        iterator._sampler_iter = itertools.cycle(list(sampler.taken))
        again = _take(iterator, None, now() + AGAIN_NS, begun_ns + LONGEST_NS)
        if again is not None:
            found["again"] = again
        twice = _asked_twice(iterator, sampler.taken)
        if twice is not None:
            found["asked_twice"] = twice
    return found


def _asked_twice(iterator, batches):
    try:
        return asked_twice.run(iterator, batches)
    except Exception:  # of the user's data set, which workers may have prepared otherwise
        return None


def _take(iterator, sampler, until_ns, last_ns):
    """[batches, nanoseconds] of whole rounds of the workers; None if too few came."""
    workers = max(iterator._num_workers, 1)
    least = max(LEAST, workers)
    arrived = []
    try:
        for _ in range(getattr(iterator, "_tasks_outstanding", 0)):
            _next(iterator, last_ns)
        arrived.append(now())
        while (now() < until_ns or len(arrived) <= least) and not (sampler is not None and sampler.over):
            _next(iterator, last_ns)
            arrived.append(now())
    except (StopIteration, TimeoutError):
        pass
    count = (len(arrived) - 1) // workers * workers
    return [count, arrived[count] - arrived[0]] if count >= LEAST else None


def _next(iterator, last_ns):
    left_ns = last_ns - now()
    if left_ns <= 0:
        raise TimeoutError
    if iterator._num_workers:
        iterator._timeout = left_ns / 1e9
    try:
        iterator._next_data()
    except RuntimeError:
        if now() >= last_ns:
            raise TimeoutError from None
        raise


class _Noting:
    """An iterator of indices that notes them."""

    def __init__(self, indices):
        self._indices = indices
        self.taken: Any = []
        self.over = False  # the pass has no more

    def __next__(self):
        try:
            index = next(self._indices)
        except StopIteration:
            self.over = True
            raise
        self.taken.append(index)
        return index
