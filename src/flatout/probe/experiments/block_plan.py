"""How many blocks of the last steps there are, and how long each is."""

from typing import NamedTuple

from ..contract import DOUBLED, REPLAYED, SINGLE, TRIMMED

BLOCK_NS = 100_000_000
LONG_NS = 100_000_000  # a step in which starting does not matter
COUNTS = ((5, 5), (4, 4), (3, 3), (3, 0))  # blocks of replayed steps; pairs of a single and a doubled one
TRIMS = 4  # pairs of a trimmed and a single one
UNUSED = 2  # batches of the pass: a script does other things at its end


class Plan(NamedTuple):
    """Blocks, in order.

    Attributes:
        changes: what each does; empty: nothing fits.
        length: counted steps of each.
        uncounted: steps before them: the training may ask for a batch one step ahead.
        because: why there are no blocks, or none with doubled batches; None: there are all.
        pass_ends: whether the next pass may have room for them.
    """

    changes: "tuple[str, ...]"
    length: int
    uncounted: int
    because: "str | None"
    pass_ends: bool


def plan(step_ns, unit, left, budget_ns, doubling, trimming=False):
    """The most blocks that fit.

    Args:
        step_ns: of a step.
        unit: batches to an update of the weights: a block has whole updates.
        left: batches of the pass; None: it has no known end.
        budget_ns: for all blocks.
        doubling: whether batches may be joined to themselves.
        trimming: whether batches hold padding that can be cut off.
    """
    most = float("inf") if left is None else left - UNUSED
    uncounted = 1 if step_ns > LONG_NS else 2
    because, pass_ends = None, False
    for replayed, pairs in COUNTS if doubling else COUNTS[-1:]:
        changes = (REPLAYED,) * replayed + (SINGLE, TRIMMED) * (TRIMS if trimming else 0) + (SINGLE, DOUBLED) * pairs
        changes += (SINGLE,) * (pairs > 0 or trimming)
        for length in _lengths(step_ns, unit):
            steps = len(changes) * (length + uncounted)
            times = steps + pairs * (length + uncounted)  # a doubled one may take twice as long
            if steps <= most and times * step_ns <= budget_ns:
                return Plan(changes, length, uncounted, None if pairs or not doubling else because, False)
        # Of the shortest blocks of this count.
        pass_ends = steps > most
        few = "only %s batches of the pass were left" % left
        long = "a step takes %.2g s, too long to try more in %.2g s" % (step_ns / 1e9, budget_ns / 1e9)
        late = "earlier looks had taken the time after the window"
        because = few if pass_ends else long if budget_ns > 0 else late
    return plan(step_ns, unit, left, budget_ns, doubling) if trimming else Plan((), 0, 0, because, pass_ends)


def _lengths(step_ns, unit):
    """Lengths of a block to try, from its intended time down to one update."""
    length = max(round(BLOCK_NS / max(step_ns, 1) / unit), 1)
    while length:
        yield length * unit
        length //= 2
