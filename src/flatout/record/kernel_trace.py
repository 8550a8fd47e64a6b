"""The kernel trace of a process, read as a table of operators, device kernels and regions."""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatout.record.json_files import open_regular

MOST_BYTES = 256 << 20  # unpacked: some 500,000 operators
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
# A tensor of one of these types among the inputs, as torch names its types.
_WIDE = re.compile(r"^(double|c10::complex<double>)$")
# Copies between the layouts of pixels inside libraries.
_CONVERSION = re.compile(r"nchwToNhwc|nhwcToNchw", re.IGNORECASE)
_REORDER = re.compile(r"aten::(to_mkldnn|mkldnn_reorder_)")
_WIDE_KERNEL = re.compile(r"\bdouble\b|dgemm|d884|f64")
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Spans:
    """Spans of one kind in the trace, in order of start; times in ns of the trace's own clock."""

    start: Ints
    end: Ints
    thread: Ints
    name: tuple[str, ...]
    call: tuple[str, ...]  # name and shapes of the inputs, and whether it converts: equal ones do the same work
    wide: Flags  # a tensor of 64-bit floats is among the inputs
    converts: Flags  # copies a tensor into another memory layout

    def __len__(self) -> int:
        return len(self.start)

    def take(self, mask: Flags) -> Spans:
        """The spans that a mask selects."""
        rows = np.flatnonzero(mask).tolist()
        names, calls = tuple(self.name[row] for row in rows), tuple(self.call[row] for row in rows)
        start, end, thread = self.start[mask], self.end[mask], self.thread[mask]
        return Spans(start, end, thread, names, calls, self.wide[mask], self.converts[mask])


@dataclass(frozen=True)
class KernelTrace:
    """What ran in the traced steps."""

    operators: Spans
    kernels: Spans  # on a device; empty on the CPU
    regions: Spans  # such as "Optimizer.step#SGD.step" and "enumerate(DataLoader)#…"
    strides: bool  # the operators' inputs are recorded with their strides: older versions of torch leave them out


def read_trace(path: Path) -> KernelTrace | str | None:
    """Read the trace at ``path``.

    Returns:
        The trace; why it cannot be read; None where there is none.
    """
    try:
        with open_regular(path) as packed, gzip.open(packed) as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            return "the kernel trace is too large to be read"
        events = json.loads(data).get("traceEvents")
    except FileNotFoundError:
        return None
    except (OSError, EOFError, zlib.error, ValueError, AttributeError, RecursionError) as error:
        return f"the kernel trace cannot be read ({type(error).__name__})"
    if not isinstance(events, list):
        return "the kernel trace holds no events"
    operators = [event for event in events if type(event) is dict and event.get("cat") == "cpu_op"]
    launching = {_external_id(event) for event in operators if _converts(event)} - {None}
    strides = any(_arguments(event).get("Input Strides") is not None for event in operators)
    return KernelTrace(
        _spans(events, ("cpu_op",)), _spans(events, _DEVICE, launching), _spans(events, ("user_annotation",)), strides
    )


def _spans(events: list[Any], categories: tuple[str, ...], launching: Collection[int | None] = ()) -> Spans:
    """The spans of some categories; kernels that one of the ``launching`` operators launched convert layouts."""
    rows = [row for event in events if (row := _row(event, categories, launching)) is not None]
    # Of spans that begin together the longer one is the outer one.
    rows.sort(key=lambda row: (row[0], -row[1]))
    start, end, thread, name, call, wide, converts = zip(*rows, strict=True) if rows else ((),) * 7
    threads = {key: place for place, key in enumerate(dict.fromkeys(thread))}
    return Spans(
        np.array(start, np.int64),
        np.array(end, np.int64),
        np.array([threads[key] for key in thread], np.int64),
        tuple(name),
        tuple(call),
        np.array(wide, bool),
        np.array(converts, bool),
    )


def _row(
    event: Any, categories: tuple[str, ...], launching: Collection[int | None]
) -> tuple[int, int, str, str, str, bool, bool] | None:
    if type(event) is not dict or event.get("ph") != "X" or event.get("cat") not in categories:
        return None
    start: Any = event.get("ts")
    duration: Any = event.get("dur")
    name = event.get("name")
    if not (_is_time(start) and _is_time(duration) and type(name) is str):
        return None
    begin = round(float(start) * 1000)
    arguments = _arguments(event)
    shapes = arguments.get("Input Dims")
    if event["cat"] == "cpu_op":
        wide, converts = _takes_wide(arguments, shapes), _converts(event)
    else:
        wide = bool(_WIDE_KERNEL.search(name))
        converts = bool(_CONVERSION.search(name)) or _external_id(event) in launching
    finish = begin + round(float(duration) * 1000)
    call = f"{name} {shapes} converted" if converts else f"{name} {shapes}"
    return begin, finish, str(event.get("tid")), name, call, wide, converts


def _arguments(event: dict[str, Any]) -> dict[str, Any]:
    arguments = event.get("args")
    return arguments if type(arguments) is dict else {}


def _external_id(event: dict[str, Any]) -> int | None:
    """The number that an operator shares with the kernels that it launches."""
    number = _arguments(event).get("External id")
    return number if type(number) is int else None


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and 0 <= value < 1e15


def _takes_wide(arguments: dict[str, Any], shapes: Any) -> bool:
    """True if a tensor of 64-bit floats is among the inputs. One without dimensions is a Python number, wrapped."""
    types = arguments.get("Input type")
    if type(types) is not list or type(shapes) is not list:
        return False
    pairs = zip(types, shapes, strict=False)
    return any(type(each) is str and _WIDE.match(each) and type(shape) is list and shape for each, shape in pairs)


def _converts(event: dict[str, Any]) -> bool:
    """True if an operator copies a tensor of the same type into another order of dimensions, or reorders for oneDNN.

    Of a part of a tensor, or of one that is repeated, the order stays.
    """
    if event.get("name") != "aten::copy_":
        return bool(_REORDER.match(str(event.get("name"))))
    arguments = _arguments(event)
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
