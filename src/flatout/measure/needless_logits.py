"""The output layer and its loss: work for positions that the loss ignores, or for classes that never occur.

A masked language model is trained on 15% of the positions, and a chat model on its answers, but most programs compute
the values of all classes (logits) at all positions. And a vocabulary may be larger than the tokenizer's.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatout.record.kernel_trace import Spans
from flatout.record.operator_inputs import tensors_of

_LEAST_CLASSES = 64  # of fewer, the values are a small part of a step
# Of classes by their frequency, the rarer half makes 6% of the text of a vocabulary of 50,000 (Zipf's law): in so many
# looked up none of them is missing by chance.
_LEAST_SEEN = 500
_LEAST_UNUSED = 0.5  # of the classes
_LOSSES = ("aten::nll_loss_forward", "aten::nll_loss2d_forward", "aten::_log_softmax_backward_data")
_OF_A_PRODUCT = 3  # tensors at most, with those that are added to it


@dataclass(frozen=True)
class NeedlessLogits:
    """Work on the values of all classes in a step.

    Attributes:
        classes: of the loss.
        positions: for which they are computed.
        ignored: share of the positions that the loss ignores.
        used: classes up to the highest that occurs; as many as there are classes where few were seen.
        by_position_s: seconds of a step in kernels that go with the positions.
        by_class_s: those that go with the classes; the former are part of them.
    """

    classes: int
    positions: int
    ignored: float
    used: int
    by_position_s: float
    by_class_s: float

    @property
    def unused(self) -> float:
        """Share of the classes that never occur."""
        return 1.0 - self.used / self.classes

    @property
    def ignored_s(self) -> float:
        """Seconds of a step in kernels, for positions that are ignored."""
        return self.ignored * self.by_position_s

    @property
    def unused_s(self) -> float:
        """The same for classes that do not occur."""
        return self.unused * self.by_class_s


def needless_logits(
    operators: Spans,
    inside: NDArray[np.bool_],
    source: NDArray[np.int64],
    work: NDArray[np.float64],
    steps: float,
    seen: dict[str, Any] | None,
) -> NeedlessLogits | None:
    """What the values of all classes cost; None: no loss over many classes was seen.

    Args:
        operators: of the trace.
        inside: those of the measured steps.
        source: operator that each piece of work belongs to; -1: unknown.
        work: ns in kernels.
        steps: measured.
        seen: the targets of a step, as the record has them.
    """
    if not seen or seen["classes"] < _LEAST_CLASSES or not seen["positions"]:
        return None
    classes, positions = int(seen["classes"]), int(seen["positions"])
    known = source >= 0
    spent = np.bincount(source[known], weights=work[known], minlength=len(operators))
    losses = [row for row in np.flatnonzero(inside).tolist() if operators.name[row].startswith(_LOSSES)]
    rows = {math.prod(shape) // classes for row in losses for shape in _shapes(operators, row) if classes in shape}
    by_position = by_class = 0.0
    for row in np.flatnonzero(inside & (spent > 0)).tolist():
        shapes = _shapes(operators, row)
        part = _of_classes(shapes, classes)
        by_class += part * float(spent[row])
        # Gradients and the optimizer's work on the layer's weights are the same however many positions there are.
        if part > 0 and any(_of_positions(shape, classes, rows) for shape in shapes):
            by_position += part * float(spent[row])
    enough = positions - int(seen["ignored"]) + int(seen.get("looked_up") or 0) >= _LEAST_SEEN
    used = min(max(int(seen["highest"]) + 1, 1), classes) if enough else classes
    return NeedlessLogits(
        classes=classes,
        positions=positions,
        ignored=min(int(seen["ignored"]) / positions, 1.0),
        used=used if used <= (1.0 - _LEAST_UNUSED) * classes else classes,
        by_position_s=by_position / 1e9 / steps,
        by_class_s=by_class / 1e9 / steps,
    )


def _shapes(operators: Spans, row: int) -> list[tuple[int, ...]]:
    return [one.shape for one in tensors_of(operators.arguments[row]) if math.prod(one.shape) > 1]


def _of_classes(shapes: Sequence[tuple[int, ...]], classes: int) -> float:
    """Part of an operator's work on tensors with a dimension of the classes: all of a product's, else by elements."""
    mine = [shape for shape in shapes if classes in shape]
    if not mine or len(shapes) <= _OF_A_PRODUCT:
        return 1.0 if any(len(shape) > 1 for shape in mine) else 0.0
    return sum(map(math.prod, mine)) / sum(map(math.prod, shapes))  # such as a list of all parameters


def _of_positions(shape: tuple[int, ...], classes: int, rows: Collection[int]) -> bool:
    """True for the values of all classes at the positions of a loss, and for what the output layer makes these of."""
    count = math.prod(shape)
    return count // classes in rows if classes in shape else len(shape) > 1 and count // shape[-1] in rows
