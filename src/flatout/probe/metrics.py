"""Numbers that a training hands to its loggers. A tensor on a device is left alone: reading it would wait for it."""

import numbers
import struct

from . import events
from .recorder import REC, now, quietly

MOST = 20_000  # per process: a training that logs everything every step must not fill the disk


class _State:
    __slots__ = ("count",)

    def __init__(self):
        self.count = 0  # metrics noted by this process


_state = _State()
_DOUBLE, _BITS = struct.Struct("<d"), struct.Struct("<q")


@quietly
def note(name, value):
    """Emit one metric if it is a number in host memory."""
    if _state.count >= MOST or not REC.on or not isinstance(name, str):
        return
    number = _number(value)
    if number is not None:
        _state.count += 1
        time = now()
        REC.emit(events.METRIC, time, time, REC.names.text(name), _BITS.unpack(_DOUBLE.pack(number))[0])


def note_all(metrics):
    """Emit those of a mapping."""
    if isinstance(metrics, dict):
        for name, value in metrics.items():
            note(name, value)


def _number(value):
    """The value as a float; None if it is no number, or lies on a device. A user-defined type may raise anything."""
    try:
        if isinstance(value, numbers.Real) and not isinstance(value, bool):
            return float(value)
        device = getattr(value, "device", None)
        if getattr(device, "type", None) == "cpu" and value.ndim == 0:
            return float(value.detach().float().numpy())
    except Exception:
        return None
    return None
