"""TensorBoard event files: TFRecords of Event messages, each with its wall time."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from flatout.logs.metrics import named_metrics
from flatout.logs.observations import Kind, Observation
from flatout.logs.readers.wire import double, fields, single, text
from flatout.logs.thinning import NOTE, WHOLE, kept

LARGEST_RECORD = 64 << 20  # images and graphs come near it; more is damage
_TRAINING = ("loss", "train")


def fits(head: bytes, name: str) -> bool:
    """By its name, or the version that the first record holds."""
    return "tfevents" in name or b"brain.Event:" in head[:64]


def read(file: IO[bytes], _: Path) -> Iterator[Observation]:
    """Yield every scalar, and for one tag of the training a step with its time.

    Raises:
        EOFError: the last record is cut off.
        ValueError: a record's length cannot be.
    """
    number, tag_of_steps = 0, None
    while header := file.read(12):
        if len(header) < 12:
            raise EOFError(f"record {number + 1}")
        (length,) = struct.unpack("<Q", header[:8])
        if length > LARGEST_RECORD:
            raise ValueError(f"record {number + 1} claims {length:,} bytes")
        data = file.read(length + 4)
        if len(data) < length + 4:
            raise EOFError(f"record {number + 1}")
        number += 1
        if not kept(number):
            continue
        time_s, step, scalars = _event(data[:length])
        for tag, value in scalars:
            metrics = named_metrics(f"{tag}: {value!r}") if math.isfinite(value) else {}
            metrics = metrics or {tag[:80]: value}
            labels = {"note": NOTE} if number > WHOLE else {}
            one = Observation(
                Kind.METRICS, metrics | {"step": float(step)}, labels, time_s, True, number, f"{tag} = {value:g}"
            )
            yield one
            if tag_of_steps is None and any(word in tag.lower() for word in _TRAINING) and "val" not in tag.lower():
                tag_of_steps = tag
            if tag == tag_of_steps:
                yield Observation(Kind.STEP, {"step": float(step)}, {"of": tag}, time_s, True, number, one.text)


def _event(data: bytes) -> tuple[float, int, list[tuple[str, float]]]:
    """Wall time, step and scalars of an Event."""
    time_s, step = float("nan"), 0
    scalars: list[tuple[str, float]] = []
    for number, value in fields(data):
        if number == 1:
            time_s = double(value)
        elif number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and isinstance(value, bytes):
            scalars += [
                found for key, part in fields(value) if key == 1 and isinstance(part, bytes) if (found := _scalar(part))
            ]
    return time_s, step, scalars


def _scalar(data: bytes) -> tuple[str, float] | None:
    """Tag and value of a Summary.Value: a simple value, or a tensor of one float."""
    tag, value = "", None
    for number, part in fields(data):
        if number == 1:
            tag = text(part)
        elif number == 2:
            value = single(part)
        elif number == 8 and isinstance(part, bytes):
            value = _tensor(part)
    return (tag, value) if tag and value is not None else None


def _tensor(data: bytes) -> float | None:
    kind = size = None
    for number, part in fields(data):
        if number == 1:
            kind = part
        elif number in (4, 5) and isinstance(part, bytes) and len(part) == 4 and kind == 1:
            size = single(part)
        elif number in (4, 6) and isinstance(part, bytes) and len(part) == 8 and kind == 2:
            size = double(part)
    return size
