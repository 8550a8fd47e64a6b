"""The kernel trace of a process, read as a table of operators, device kernels and regions."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatout.record.conversions import (
    CONVERSION_KERNEL,
    arguments_of,
    converting_copies,
    external_id,
    has_strides,
    is_time,
)
from flatout.record.json_files import open_regular

MOST_BYTES = 256 << 20  # unpacked: some 500,000 operators
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
# A tensor of one of these types among the inputs, as torch names its types.
_WIDE = re.compile(r"^(double|c10::complex<double>)$")
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
    arguments: tuple[dict[str, Any], ...]  # what else the trace says, such as the inputs of an operator

    def __len__(self) -> int:
        return len(self.start)

    def take(self, mask: Flags) -> Spans:
        """The spans that a mask selects."""
        rows = np.flatnonzero(mask).tolist()
        names, calls = tuple(self.name[row] for row in rows), tuple(self.call[row] for row in rows)
        arguments = tuple(self.arguments[row] for row in rows)
        start, end, thread = self.start[mask], self.end[mask], self.thread[mask]
        return Spans(start, end, thread, names, calls, self.wide[mask], self.converts[mask], arguments)


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
        if isinstance(error, EOFError):
            return "the kernel trace was not complete when the run ended"
        return f"the kernel trace cannot be read ({type(error).__name__})"
    if not isinstance(events, list):
        return "the kernel trace holds no events"
    events = [event for event in events if type(event) is dict and event.get("ph") == "X"]
    converting = converting_copies(events)
    return KernelTrace(
        _spans(events, ("cpu_op",), {id(event) for event in converting}),
        _spans(events, _DEVICE, {external_id(event) for event in converting} - {None}),
        _spans(events, ("user_annotation",)),
        has_strides(events),
    )


def _spans(events: list[dict[str, Any]], categories: tuple[str, ...], converting: Collection[int | None] = ()) -> Spans:
    """The spans of some categories; ``converting`` are ids of operators, or the numbers under which kernels ran."""
    rows = [row for event in events if (row := _row(event, categories, converting)) is not None]
    # Of spans that begin together the longer one is the outer one.
    rows.sort(key=lambda row: (row[0], -row[1]))
    start, end, thread, name, call, wide, converts, arguments = zip(*rows, strict=True) if rows else ((),) * 8
    threads = {key: place for place, key in enumerate(dict.fromkeys(thread))}
    return Spans(
        np.array(start, np.int64),
        np.array(end, np.int64),
        np.array([threads[key] for key in thread], np.int64),
        tuple(name),
        tuple(call),
        np.array(wide, bool),
        np.array(converts, bool),
        tuple(arguments),
    )


def _row(
    event: dict[str, Any], categories: tuple[str, ...], converting: Collection[int | None]
) -> tuple[int, int, str, str, str, bool, bool, dict[str, Any]] | None:
    if event.get("cat") not in categories:
        return None
    start: Any = event.get("ts")
    duration: Any = event.get("dur")
    name = event.get("name")
    if not (is_time(start) and is_time(duration) and type(name) is str):
        return None
    begin = round(float(start) * 1000)
    arguments = arguments_of(event)
    shapes = arguments.get("Input Dims")
    if event["cat"] == "cpu_op":
        wide, converts = _takes_wide(arguments, shapes), id(event) in converting
    else:
        wide = bool(_WIDE_KERNEL.search(name))
        converts = bool(CONVERSION_KERNEL.search(name)) or external_id(event) in converting
    finish = begin + round(float(duration) * 1000)
    call = f"{name} {shapes} converted" if converts else f"{name} {shapes}"
    return begin, finish, str(event.get("tid")), name, call, wide, converts, arguments


def _takes_wide(arguments: dict[str, Any], shapes: Any) -> bool:
    """True if a tensor of 64-bit floats is among the inputs. One without dimensions is a Python number, wrapped."""
    types = arguments.get("Input type")
    if type(types) is not list or type(shapes) is not list:
        return False
    pairs = zip(types, shapes, strict=False)
    return any(type(each) is str and _WIDE.match(each) and type(shape) is list and shape for each, shape in pairs)
