"""The operators of a step with what they have to do, and how much of the time in kernels each takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from flatout.measure.operator_costs import NOTHING, Cost, cost, moves_no_data
from flatout.measure.timeline import Floats, Ints
from flatout.record.kernel_trace import Spans
from flatout.record.operator_inputs import Tensor, call_key, number, read_inputs
from flatout.results import Line

_ENGINE = "autograd::engine::"
_OPTIMIZERS = ("aten::_foreach_", "aten::_fused_")
# Over the bus between host and device, whose rate is not that of the device's memory.
OVER_THE_BUS = ("Memcpy HtoD", "Memcpy DtoH")
_MOST_SHAPES, _LONGEST_NAME = 3, 60


@dataclass(frozen=True)
class CostlyOperator:
    """All calls of one operator with inputs of the same shapes and types, in one training step.

    Attributes:
        name: as torch's profiler has it; of a kernel that no operator launched, its own.
        inputs: the shapes of its first tensors of two dimensions or more, such as "32x64, 64x10".
        dtype: of its products, or of what it reads; empty: not known.
        caller: the function of torch that the training's code called; in the backward pass, called forward.
        calls: a step.
        seconds: in kernels, a step.
        cost: of one call; None: not known.
        possible_s: a step, at the rates that the device gives; None: not known.
        lines: of code that call ``caller``, the most time first.
    """

    name: str
    inputs: str
    dtype: str
    caller: str
    calls: float
    seconds: float
    cost: Cost | None
    possible_s: float | None = None
    lines: tuple[Line, ...] = ()

    @property
    def short_name(self) -> str:
        """Its name without that of torch's library, or of what calls each part of the backward pass."""
        return self.name.removeprefix("aten::").removeprefix(f"{_ENGINE}evaluate_function: ")

    @property
    def flops(self) -> float | None:
        """Floating-point operations a second; None: it has none, or its cost is not known."""
        known = self.cost is not None and self.cost.flops > 0 and self.seconds > 0
        return self.cost.flops * self.calls / self.seconds if known and self.cost else None

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes a second; None: it touches no memory, or its cost is not known."""
        known = self.cost is not None and self.cost.bytes > 0 and self.seconds > 0
        return self.cost.bytes * self.calls / self.seconds if known and self.cost else None


@dataclass(frozen=True)
class Attribution:
    """Each operator of a trace by the one whose cost contains its own.

    Attributes:
        owner: row of that operator, by row.
        costs: of each owner, by row; None: not known.
        call: equal for operators that have the same to do, by row.
        caller: the function of torch that led to it, by row.
    """

    owner: Ints
    costs: tuple[Cost | None, ...]
    call: tuple[str, ...]
    caller: tuple[str, ...]


def attribute(
    operators: Spans, parent: Ints, children: Ints, param_dtype: str | None, autocast: str | None
) -> Attribution:
    """Find the outermost operator of known cost around each one.

    Args:
        operators: of a trace.
        parent: row of the operator that calls each one; -1: none does.
        children: how many operators each one calls.
        param_dtype: type of the weights, as torch names it; None: not known.
        autocast: type of autocast; None: there was none.
    """
    known: dict[str, Cost | None] = {}
    calls = tuple(call_key(name, given) for name, given in zip(operators.name, operators.arguments, strict=True))
    owner = np.arange(len(operators), dtype=np.int64)
    costs: list[Cost | None] = [None] * len(operators)
    contained = [False] * len(operators)  # in an operator of known cost
    for row, (name, call, above) in enumerate(zip(operators.name, calls, parent.tolist(), strict=True)):
        if above >= 0 and contained[above]:
            owner[row], contained[row] = owner[above], True
            continue
        if call not in known:
            listed = param_dtype if name.startswith(_OPTIMIZERS) else autocast or param_dtype
            known[call] = cost(name, read_inputs(operators.arguments[row], listed))
        costs[row], contained[row] = known[call], known[call] is not None
        if costs[row] is None and moves_no_data(name, bool(children[row])):
            costs[row] = NOTHING
    return Attribution(owner, tuple(costs), calls, _callers(operators, parent))


def _callers(operators: Spans, parent: Ints) -> tuple[str, ...]:
    """The outermost operator around each one; of one in the backward pass, that of its forward operator."""
    sequence = [number(given, "Sequence number") for given in operators.arguments]
    root: list[int] = []
    forward: dict[int | None, str] = {}
    for row, above in enumerate(parent.tolist()):
        root.append(root[above] if above >= 0 else row)
        outer = operators.name[root[row]]
        # Operators without a gradient bear the number that the next one with a gradient will have: the last one counts.
        if sequence[row] is not None and not outer.startswith(_ENGINE):
            forward[sequence[row]] = outer
    names = []
    for outermost in root:
        name = operators.name[outermost]
        names.append(forward.get(sequence[outermost], "") if name.startswith(_ENGINE) else name)
    return tuple(name.removeprefix("aten::") for name in names)


def launched_by(attribution: Attribution, operators: Spans, kernels: Spans) -> Ints:
    """The owners of the operators that launched the kernels; -1: not known."""
    row_of = {number(given, "External id"): row for row, given in enumerate(operators.arguments)}
    row_of.pop(None, None)
    rows = [
        -1 if name.startswith(OVER_THE_BUS) else row_of.get(number(given, "External id"), -1)
        for name, given in zip(kernels.name, kernels.arguments, strict=True)
    ]
    found = np.array(rows, np.int64)
    return np.where(found >= 0, attribution.owner[found], -1)


def by_cost(
    operators: Spans, attribution: Attribution, owner: Ints, names: tuple[str, ...], work: Floats, steps: float
) -> tuple[CostlyOperator, ...]:
    """Put equal calls together, the most time first.

    Args:
        operators: all of a trace.
        attribution: of these.
        owner: row of the operator that each piece of work belongs to; -1: not known.
        names: of the pieces.
        work: ns of each piece.
        steps: training steps in which the pieces lie.
    """
    keys: dict[tuple[str, str], int] = {}
    first: list[int] = []
    names_of: list[str] = []
    group = []
    for row, name in zip(owner.tolist(), names, strict=True):
        key = (attribution.call[row], attribution.caller[row]) if row >= 0 else (name, "")
        if key not in keys:
            keys[key] = len(first)
            first.append(row)
            names_of.append(operators.name[row] if row >= 0 else name)
        group.append(keys[key])
    place = np.array(group, np.int64)
    seconds = np.bincount(place, work, minlength=len(first)) / (1e9 * steps)
    # An operator that calls others, or launches several kernels, is one call.
    _, once = np.unique(np.where(owner >= 0, owner, -1 - np.arange(len(owner))), return_index=True)
    calls = np.bincount(place[once], minlength=len(first)) / steps
    found = [
        replace(_described(operators, attribution, row, name), calls=float(count), seconds=float(time_s))
        for row, name, count, time_s in zip(first, names_of, calls.tolist(), seconds.tolist(), strict=True)
    ]
    return tuple(sorted(found, key=lambda one: -one.seconds))


def _described(operators: Spans, attribution: Attribution, row: int, name: str) -> CostlyOperator:
    if row < 0:
        return CostlyOperator(name[:_LONGEST_NAME], "", "", "", 0.0, 0.0, None)
    inputs = read_inputs(operators.arguments[row], None)
    tensors = [one for one in inputs if isinstance(one, Tensor) and one.shape]
    large = [one for one in tensors if len(one.shape) > 1] or tensors  # not biases
    shapes = ["x".join(map(str, one.shape)) for one in large[:_MOST_SHAPES]]
    known = attribution.costs[row]
    dtype = known.dtype if known is not None else tensors[0].dtype if tensors else ""
    return CostlyOperator(name[:_LONGEST_NAME], ", ".join(shapes), dtype, attribution.caller[row], 0.0, 0.0, known)


def with_lines(
    operators: tuple[CostlyOperator, ...], lines: Mapping[str, tuple[Line, ...]]
) -> tuple[CostlyOperator, ...]:
    """The same operators with the lines of their callers."""
    return tuple(replace(one, lines=lines.get(one.caller, ())) for one in operators)
