"""W&B's offline files: records in LevelDB's log framing, each a protobuf message with JSON values inside.

The framing: github.com/google/leveldb, doc/log_format.md, with a header of 7 bytes before the first block.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from flatout.logs.metrics import named_metrics
from flatout.logs.observations import Kind, Observation
from flatout.logs.readers.wire import double, fields, text

BLOCK = 32768
HEADER = b":W&B"
LARGEST_RECORD = 64 << 20
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
# Fields of Record, and of the items within.
_HISTORY, _CONFIG, _STATS, _RUN, _ENVIRONMENT = 2, 5, 7, 17, 26
_CONFIG_OF_RUN, _GPU_NAME = 4, 18
_KEY, _NESTED, _INTEGER, _NUMBER, _JSON = 1, 2, 5, 6, 16
_GPU = {"gpu": "utilisation", "memoryAllocatedBytes": "used_bytes", "powerWatts": "watts", "temp": "celsius"}


def fits(head: bytes, name: str) -> bool:
    """By the header."""
    return head.startswith(HEADER)


def read(file: IO[bytes], _: Path) -> Iterator[Observation]:
    """Yield history, system statistics and settings.

    Raises:
        EOFError: the last record is cut off, as after a kill.
    """
    for number, record in enumerate(_records(file), 1):
        for field, content in fields(record):
            if not isinstance(content, bytes):
                continue
            if field == _HISTORY:
                for one in _history(_items(content)):
                    one.line = number
                    yield one
            elif field == _STATS:
                yield from _numbered(_stats(content), number)
            elif field == _CONFIG:
                yield from _numbered(_config(_items(content)), number)
            elif field == _RUN:
                configs = [part for at, part in fields(content) if at == _CONFIG_OF_RUN and isinstance(part, bytes)]
                for config in configs:
                    yield from _numbered(_config(_items(config)), number)
            elif field == _ENVIRONMENT:
                yield from _numbered(_environment(content), number)


def _numbered(observed: list[Observation], number: int) -> list[Observation]:
    for one in observed:
        one.line = number
    return observed


def _records(file: IO[bytes]) -> Iterator[bytes]:
    """Records, joined from their pieces."""
    pieces: list[bytes] = []
    offset = len(file.read(7))
    while True:
        left = BLOCK - offset % BLOCK
        if left < 7:
            file.read(left)
            offset += left
            continue
        header = file.read(7)
        if not header:
            return
        if len(header) < 7:
            raise EOFError("a record's header")
        _, length, kind = struct.unpack("<IHB", header)
        if kind == 0 and length == 0:  # zeros that fill a block
            file.read(left - 7)
            offset += left
            continue
        data = file.read(length)
        offset += 7 + length
        if len(data) < length:
            raise EOFError("a record")
        if kind in (_FULL, _FIRST):
            pieces = [data]
        elif kind in (_MIDDLE, _LAST):
            pieces.append(data)
        else:
            raise ValueError(f"a record of type {kind}")
        if sum(map(len, pieces)) > LARGEST_RECORD:
            pieces = []
        if kind in (_FULL, _LAST) and pieces:
            yield b"".join(pieces)
            pieces = []


def _items(content: bytes, at: int = 1) -> dict[str, Any]:
    """Key and JSON value of each item of a message."""
    found: dict[str, Any] = {}
    for field, item in fields(content):
        if field != at or not isinstance(item, bytes):
            continue
        key, nested, value = "", [], ""
        plain: float | None = None
        for part, data in fields(item):
            if part == _KEY:
                key = text(data)
            elif part == _NESTED:
                nested.append(text(data))
            elif part == _JSON:
                value = text(data)
            elif part == _NUMBER:
                plain = double(data)
            elif part == _INTEGER and isinstance(data, int):
                plain = float(data)
        if plain is not None:
            found[key or ".".join(nested)] = plain
        elif len(value) < 10_000:
            try:
                found[key or ".".join(nested)] = json.loads(value)
            except (ValueError, RecursionError):
                continue
    return found


def _history(items: dict[str, Any]) -> Iterator[Observation]:
    numbers = {key: float(value) for key, value in items.items() if _is_number(value)}
    time_s, step = numbers.get("_timestamp"), numbers.get("_step")
    metrics: dict[str, float] = {}
    for key, value in numbers.items():
        if not key.startswith("_") and math.isfinite(value):
            metrics |= named_metrics(f"{key}: {value!r}") or {key[:80]: value}
    when = {"step": step} if step is not None else {}
    if metrics:
        yield Observation(Kind.METRICS, metrics | when, {}, time_s, True)
    if step is not None and time_s is not None:
        yield Observation(Kind.STEP, {"step": step}, {"of": "_step"}, time_s, True)


def _stats(content: bytes) -> list[Observation]:
    """System statistics: the GPUs' and the processor's."""
    time_s = None
    for field, part in fields(content):
        if field == 2 and isinstance(part, bytes):
            time_s = sum(
                float(value) * (1 if number == 1 else 1e-9) for number, value in fields(part) if isinstance(value, int)
            )
    gpus: dict[float, dict[str, float]] = {}
    host: dict[str, float] = {}
    for key, value in _items(content, 3).items():
        if not _is_number(value):
            continue
        parts = key.split(".")
        if len(parts) == 3 and parts[0] == "gpu" and parts[1].isdigit() and parts[2] in _GPU:
            scale = 0.01 if parts[2] == "gpu" else 1.0
            gpus.setdefault(float(parts[1]), {})[_GPU[parts[2]]] = float(value) * scale
        elif key == "cpu":
            host["cpu"] = float(value) / 100
        elif key == "proc.memory.rssMB":
            host["rss_bytes"] = float(value) * 2**20
    observed = [Observation(Kind.DEVICE, values | {"index": at}, {}, time_s, True) for at, values in gpus.items()]
    return [*observed, Observation(Kind.HOST, host, {}, time_s, True)] if host else observed


def _config(items: dict[str, Any]) -> list[Observation]:
    names = {
        "batch_size": "batch_size",
        "epochs": "epochs",
        "max_epochs": "epochs",
        "num_workers": "workers",
        "workers": "workers",
    }
    settings = {names[key]: float(value) for key, value in items.items() if key in names and _is_number(value)}
    return [Observation(Kind.SETTING, settings, {"phase": "seen"})] if settings else []


def _environment(content: bytes) -> list[Observation]:
    """The GPU's name, and the cores."""
    gpu = next((text(part) for field, part in fields(content) if field == _GPU_NAME), "")
    return [Observation(Kind.SETTING, {}, {"phase": "seen", "device": gpu[:80]})] if gpu.isprintable() and gpu else []


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
