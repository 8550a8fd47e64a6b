"""Device time from CUDA events: recorded in the stream, read later, never waited for.

An event recorded at host time h runs on the device at d >= h, and immediately if the device is idle.
So with e the device time since a reference event, the reference lies at max(h - e) on the host's clock;
the first forward pass finds an idle device and makes that tight. Nothing is synchronised for it.
"""

from collections import deque
from typing import Any

import torch

from .. import events
from ..recorder import REC, now, quietly
from .blocking import device_present

MAX_PENDING = 8192
ANCHOR_EVERY_NS = 20_000_000_000  # elapsed_time is a float32 of milliseconds: keep spans of it short

present = False  # checked before any call into this module: without a device, phases cost nothing more
_cuda = torch.cuda
Recorded = tuple["torch.cuda.Event", int]  # an event, and the host's time when it was recorded
_pending: deque[tuple[int, Recorded, Recorded]] = deque()  # kind, start, end
_spare: list["torch.cuda.Event"] = []
_anchor: Any = [None, 0, 0]  # reference event, its place on the host's clock (ns), host time of recording
_streams: Any = {}  # torch's numbers of a stream -> the stream: making the object takes longer than recording
MOST_STREAMS = 64


def install():
    """Use CUDA events where this torch was built with CUDA or ROCm."""
    global present
    if not device_present():
        return
    if torch.version.cuda or getattr(torch.version, "hip", None):
        present = True


@quietly
def mark():
    """Record an event at the start of a phase; None when there is no device in use."""
    if not _cuda.is_initialized() or _cuda.is_current_stream_capturing():
        return None
    if _anchor[0] is None:
        _anchor[0] = _record()
        _anchor[1] = _anchor[2] = now()
    return _record()[:2]


def _record():
    event = _spare.pop() if _spare else _cuda.Event(enable_timing=True)
    stream = _stream()
    host = now()
    event.record(stream)
    return event, host


def _stream():
    """The stream in use; None where torch has other functions for that: it then finds the stream itself."""
    try:
        numbers = torch._C._cuda_getCurrentStream(torch._C._cuda_getDevice())
    except AttributeError:
        return None
    stream = _streams.get(numbers)
    if stream is None:
        if len(_streams) >= MOST_STREAMS:
            _streams.clear()
        stream = _streams[numbers] = _cuda.current_stream()
    return stream


def span(kind, begin):
    """Close the phase that ``begin`` opened."""
    if len(_pending) < MAX_PENDING:
        _pending.append((kind, begin, _record()))


def resolve():
    """Emit the spans whose events the device has passed."""
    while _pending and _pending[0][2][0].query():
        kind, (first, first_host), (last, _) = _pending.popleft()
        anchor = _anchor[0][0]
        since_anchor = int(anchor.elapsed_time(first) * 1e6)
        _anchor[1] = max(_anchor[1], first_host - since_anchor)
        start = _anchor[1] + since_anchor
        REC.emit(events.DEVICE_SPAN, start, start + int(first.elapsed_time(last) * 1e6), kind)
        if now() - _anchor[2] > ANCHOR_EVERY_NS:
            # ``first`` becomes the anchor, so it is not spare; the old anchor is dropped, not reused.
            _anchor[1] = start
            _anchor[0] = (first, first_host)
            _anchor[2] = now()
        else:
            _spare.append(first)
        _spare.append(last)
