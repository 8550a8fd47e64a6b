"""Copies between memory layouts among the events of a kernel trace."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Kernels that convert layouts inside libraries.
CONVERSION_KERNEL = re.compile(r"nchwToNhwc|nhwcToNchw", re.IGNORECASE)
_REORDER = re.compile(r"aten::(to_mkldnn|mkldnn_reorder_)")  # oneDNN's own layouts
# A copy in one of these is of a weight or of its gradient: no layout of the activations avoids it.
_OF_WEIGHTS = re.compile(r"torch::autograd::AccumulateGrad|Optimizer\.step#")
_CONVOLVED, _TO = re.compile(r"aten::convolution_backward$"), re.compile(r"aten::_to_copy$")


def arguments_of(event: dict[str, Any]) -> dict[str, Any]:
    """What the trace says of an event beside its name and time."""
    arguments = event.get("args")
    return arguments if type(arguments) is dict else {}


def external_id(event: dict[str, Any]) -> int | None:
    """The number that an operator shares with the kernels that it launches."""
    number = arguments_of(event).get("External id")
    return number if type(number) is int else None


def is_time(value: Any) -> bool:
    """True for a time of the trace, in microseconds."""
    return type(value) in (int, float) and 0 <= value < 1e15


def has_strides(events: list[dict[str, Any]]) -> bool:
    """True if operators' inputs are recorded with their strides; older versions of torch leave them out."""
    return any("Input Strides" in arguments_of(event) for event in events)


def converting_copies(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The operators that copy activations, or their gradients, into another memory layout.

    Gradients of weights are left out: a convolution's backward pass makes them in a layout of its own.
    """
    timed = [event for event in events if is_time(event.get("ts")) and is_time(event.get("dur"))]
    found = [event for event in timed if event.get("cat") == "cpu_op" and _converts(event)]
    if not found:
        return []
    start = np.array([event["ts"] for event in found], np.float64)
    convolved, to, weights = (_inside(start, timed, name) for name in (_CONVOLVED, _TO, _OF_WEIGHTS))
    counted = ~(weights | (convolved & to))
    return [found[row] for row in np.flatnonzero(counted).tolist()]


def _inside(start: NDArray[np.float64], events: list[dict[str, Any]], name: re.Pattern[str]) -> NDArray[np.bool_]:
    """Whether each time lies in an event of this name; such events do not hold each other."""
    pairs = sorted((event["ts"], event["ts"] + event["dur"]) for event in events if name.match(str(event.get("name"))))
    if not pairs:
        return np.zeros(len(start), bool)
    begin, end = np.array(pairs, np.float64).T
    row = np.searchsorted(begin, start, "right") - 1
    return np.asarray((row >= 0) & (start < end[np.maximum(row, 0)]))


def _converts(event: dict[str, Any]) -> bool:
    """True if an operator copies a tensor of the same type into another order of dimensions, or reorders for oneDNN.

    The order of a part of a tensor, or of one that is repeated, stays.
    """
    if event.get("name") != "aten::copy_":
        return bool(_REORDER.match(str(event.get("name"))))
    arguments = arguments_of(event)
    pairs = [arguments.get(key) for key in ("Input Dims", "Input Strides", "Input type")]
    if not all(type(pair) is list and len(pair) >= 2 for pair in pairs):
        return False
    (shape, shape_from), (strides, strides_from), (kind, kind_from) = (pair[:2] for pair in pairs if pair)
    if shape != shape_from or kind != kind_from:
        return False
    order, order_from = _order(shape, strides), _order(shape, strides_from)
    return order is not None and order_from is not None and order != order_from


def _order(shape: Any, strides: Any) -> list[int] | None:
    """Dimensions of more than one element, outermost in memory first; None where one is repeated or not recorded."""
    if not (type(shape) is list and type(strides) is list and len(shape) == len(strides)):
        return None
    if not all(type(number) is int for number in (*shape, *strides)):
        return None
    real = [dimension for dimension, size in enumerate(shape) if size > 1]
    if any(strides[dimension] <= 0 for dimension in real):
        return None
    return sorted(real, key=lambda dimension: -strides[dimension])
