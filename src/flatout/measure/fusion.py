"""What a compiler can save by fusing operators: values that one operator writes and the next one reads again."""

from __future__ import annotations

from dataclasses import dataclass

from flatout.measure.costly_operators import Attribution
from flatout.measure.operator_costs import NOTHING, Cost
from flatout.measure.timeline import Flags, Floats, Ints


@dataclass(frozen=True)
class Fusible:
    """Savings of one training step.

    Attributes:
        likely_s: seconds, if each value is read once less: the backward pass may still need it in memory.
        most_s: the same, if it is never written either.
        bytes: that are then neither read nor written, at the most.
        operators: that take part.
    """

    likely_s: float = 0.0
    most_s: float = 0.0
    bytes: float = 0.0
    operators: float = 0.0


NOT_FUSIBLE = Fusible()


def fusible(attribution: Attribution, rows: Ints, of_model: Flags, owner: Ints, work: Floats, steps: float) -> Fusible:
    """Find operators without products that follow one another, each of which reads the result of the one before.

    The trace holds no addresses: a result counts as read if the next operator reads a tensor of its shape. The time
    of an operator is divided in proportion to the bytes that it reads and writes.

    Args:
        attribution: of the trace's operators.
        rows: of the operators of the step, in order of their start.
        of_model: those of them that a compiled model would contain; an optimizer is outside.
        owner: row of the operator that each piece of work belongs to; -1: not known.
        work: ns of each piece.
        steps: training steps in which they lie.
    """
    spent: dict[int, float] = {}
    for row, ns in zip(owner.tolist(), work.tolist(), strict=True):
        spent[row] = spent.get(row, 0.0) + ns
    likely = most = size = 0.0
    parts: set[int] = set()
    before: int | None = None
    for row, inside in zip(rows.tolist(), of_model.tolist(), strict=True):
        found = attribution.costs[row] if attribution.owner[row] == row else NOTHING
        if found is NOTHING:
            continue
        if not inside or found is None or found.flops or not found.bytes:
            before = None
            continue
        passed = _passed_on(attribution.costs[before], found) if before is not None else 0
        if passed and before is not None:
            writer = attribution.costs[before]
            read = spent.get(row, 0.0) * min(passed / found.bytes, 1.0)
            likely += read
            most += read + (spent.get(before, 0.0) * min(passed / writer.bytes, 1.0) if writer else 0.0)
            size += 2 * passed
            parts |= {before, row}
        before = row
    return Fusible(likely / (1e9 * steps), most / (1e9 * steps), size / steps, len(parts) / steps)


def _passed_on(writer: Cost | None, reader: Cost) -> int:
    """Bytes of the result that the next operator reads; 0: it reads nothing of that shape."""
    if writer is None or writer.result is None or not writer.result.shape:
        return 0
    return writer.result.bytes if writer.result.shape in reader.reads else 0
