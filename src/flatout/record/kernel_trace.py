"""The kernel trace of a process, read as a table of operators, device kernels and regions."""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
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
    call: tuple[str, ...]  # name and shapes of the inputs: equal ones do the same work
    wide: Flags  # a tensor of 64-bit floats is among the inputs
    arguments: tuple[dict[str, Any], ...]  # what else the trace says, such as the inputs of an operator

    def __len__(self) -> int:
        return len(self.start)

    def take(self, mask: Flags) -> Spans:
        """The spans that a mask selects."""
        rows = np.flatnonzero(mask).tolist()
        names, calls = tuple(self.name[row] for row in rows), tuple(self.call[row] for row in rows)
        arguments = tuple(self.arguments[row] for row in rows)
        return Spans(self.start[mask], self.end[mask], self.thread[mask], names, calls, self.wide[mask], arguments)


@dataclass(frozen=True)
class KernelTrace:
    """What ran in the traced steps."""

    operators: Spans
    kernels: Spans  # on a device; empty on the CPU
    regions: Spans  # such as "Optimizer.step#SGD.step" and "enumerate(DataLoader)#…"


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
    return KernelTrace(_spans(events, ("cpu_op",)), _spans(events, _DEVICE), _spans(events, ("user_annotation",)))


def _spans(events: list[Any], categories: tuple[str, ...]) -> Spans:
    rows = [row for event in events if (row := _row(event, categories)) is not None]
    # Of spans that begin together the longer one is the outer one.
    rows.sort(key=lambda row: (row[0], -row[1]))
    start, end, thread, name, call, wide, arguments = zip(*rows, strict=True) if rows else ((),) * 7
    threads = {key: place for place, key in enumerate(dict.fromkeys(thread))}
    return Spans(
        np.array(start, np.int64),
        np.array(end, np.int64),
        np.array([threads[key] for key in thread], np.int64),
        tuple(name),
        tuple(call),
        np.array(wide, bool),
        tuple(arguments),
    )


def _row(event: Any, categories: tuple[str, ...]) -> tuple[int, int, str, str, str, bool, dict[str, Any]] | None:
    if type(event) is not dict or event.get("ph") != "X" or event.get("cat") not in categories:
        return None
    start: Any = event.get("ts")
    duration: Any = event.get("dur")
    name = event.get("name")
    if not (_is_time(start) and _is_time(duration) and type(name) is str):
        return None
    begin = round(float(start) * 1000)
    arguments = event.get("args")
    arguments = arguments if type(arguments) is dict else {}
    shapes = arguments.get("Input Dims")
    wide = _takes_wide(arguments, shapes) if event["cat"] == "cpu_op" else bool(_WIDE_KERNEL.search(name))
    finish = begin + round(float(duration) * 1000)
    return begin, finish, str(event.get("tid")), name, f"{name} {shapes}", wide, arguments


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and 0 <= value < 1e15


def _takes_wide(arguments: dict[str, Any], shapes: Any) -> bool:
    """True if a tensor of 64-bit floats is among the inputs. One without dimensions is a Python number, wrapped."""
    types = arguments.get("Input type")
    if type(types) is not list or type(shapes) is not list:
        return False
    pairs = zip(types, shapes, strict=False)
    return any(type(each) is str and _WIDE.match(each) and type(shape) is list and shape for each, shape in pairs)
