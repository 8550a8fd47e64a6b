"""Traces of torch.profiler: Chrome's JSON, found event by event in a stream, so that its size does not matter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from flatout.logs.observations import Kind, Observation

BLOCK = 1 << 20
LONGEST_EVENT = 1 << 14
_NUMBER = rb"(\d+(?:\.\d+)?)"
_EVENT = re.compile(
    rb'"ph":\s*"X",\s*"cat":\s*"([^"]{1,40})",\s*"name":\s*"((?:[^"\\]|\\.){1,400})",\s*"pid":\s*[^,]{1,60},\s*"tid":\s*[^,]{1,60},'
    rb'\s*"ts":\s*' + _NUMBER + rb',\s*"dur":\s*' + _NUMBER
)
_DEVICE = re.compile(rb'"id":\s*\d+,\s*"name":\s*"([^"]{2,80})"')
_BASE = re.compile(rb'"baseTimeNanoseconds":\s*(\d+)')
NOTE = "torch.profiler slows what it records: kernels' times hold, steps are longer than without it"


def fits(head: bytes, name: str) -> bool:
    """JSON with the keys of such a trace."""
    return head.lstrip()[:1] in (b"{", b"[") and (b'"traceEvents"' in head or b'"deviceProperties"' in head)


def read(file: IO[bytes], _: Path) -> Iterator[Observation]:
    """Yield each profiled step with the part that waited for the loader, and how busy the GPU was in all of them."""
    steps: list[tuple[float, float, str]] = []
    waits: list[tuple[float, float]] = []
    kernels: list[tuple[float, float]] = []
    busy = copying = 0.0
    first, last = float("inf"), 0.0
    carried, base, device = b"", 0.0, ""
    while block := file.read(BLOCK):
        block = carried + block
        if not base and (found := _BASE.search(block)):
            base = float(found[1]) / 1e9
        if not device and (named := _DEVICE.search(block)):
            device = named[1].decode("utf-8", "replace")
        at = 0
        for event in _EVENT.finditer(block):
            at = event.end()
            kind, name = event[1], event[2]
            start, length = float(event[3]) / 1e6, float(event[4]) / 1e6
            if name.startswith(b"ProfilerStep#") and kind != b"gpu_user_annotation" and len(steps) < 10_000:
                steps.append((start, length, name.decode()))
            elif name.startswith(b"enumerate(DataLoader)") and len(waits) < 100_000:
                waits.append((start, length))
            elif kind in (b"kernel", b"gpu_memcpy", b"gpu_memset"):
                busy += length
                copying += length if kind == b"gpu_memcpy" and b"HtoD" in name else 0.0
                first, last = min(first, start), max(last, start + length)
                if len(kernels) < 200_000:
                    kernels.append((start, length))
        carried = block[max(at, len(block) - LONGEST_EVENT) :]
    for number, (start, length, name) in enumerate(steps):
        data = sum(one for begin, one in waits if start <= begin < start + length)
        values = {"step": float(number), "step_s": length, "data_s": data, "total": float(len(steps))}
        yield Observation(Kind.STEP, values, {"note": NOTE}, base + start if base else None, True, 0, name)
    if busy and last > first:
        values = {
            "index": 0.0,
            "utilisation": min(_covered(kernels) / (last - first), 1.0),
            "copying": copying / (last - first),
        }
        yield Observation(Kind.DEVICE, values, {"name": device}, base + first if base else None, True)


def _covered(spans: list[tuple[float, float]]) -> float:
    """Time that at least one span covers: streams overlap."""
    covered, end = 0.0, 0.0
    for start, length in sorted(spans):
        covered += max(start + length - max(start, end), 0.0)
        end = max(end, start + length)
    return covered
