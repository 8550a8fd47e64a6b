"""Copies to the device, and reads that make the host wait for it. Patched only if a device is present."""

import os
import sys

import torch

from .. import events
from ..contract import DEVICE_HOOKS_VARIABLE
from ..recorder import REC, now, report_fault
from ..sites import user_site
from ..unbound import unseen
from ..wrap import is_compiling, is_traced

READS = ("item", "tolist", "cpu", "numpy", "__float__", "__int__", "__bool__", "__index__", "__repr__", "nonzero")
COPIES = ("to", "cuda")


class _State:
    __slots__ = ("reading",)

    def __init__(self):
        self.reading = False


_state = _State()


def device_present():
    """True if an accelerator may be in use, determined without touching its driver."""
    if os.environ.get(DEVICE_HOOKS_VARIABLE) == "1":
        return True
    return sys.platform == "darwin" or any(map(os.path.exists, ("/dev/nvidiactl", "/dev/kfd", "/dev/dri/renderD128")))


def install():
    """Patch the tensor methods that move data or wait; on a machine without a device, none."""
    if not device_present():
        return
    for name in COPIES:
        original = getattr(torch.Tensor, name)
        setattr(torch.Tensor, name, _timed_copy(original, name))
    for name in READS:
        original = getattr(torch.Tensor, name, None)
        if original is not None:
            setattr(torch.Tensor, name, _timed_read(original, name))
    synchronize = torch.cuda.synchronize

    @unseen(synchronize)
    # untested: runs under the name of another file, which coverage.py does not know
    def timed_synchronize(*args, **kwargs):
        if is_compiling() or not REC.on:
            return synchronize(*args, **kwargs)
        start = now()
        try:
            return synchronize(*args, **kwargs)
        finally:
            _emit_read(start, "torch.cuda.synchronize")

    torch.cuda.synchronize = timed_synchronize


def _emit_read(start, operation):
    try:
        end = now()
        REC.emit(events.BLOCKING_READ, start, end, user_site(), REC.names.text(operation))
    except Exception:
        report_fault(operation)


def _timed_copy(original, name):
    @unseen(original)
    def copy(self, *args, **kwargs):
        if is_compiling() or not REC.on or is_traced():
            return original(self, *args, **kwargs)
        start = now()
        result = original(self, *args, **kwargs)
        if result is not self and result.is_cpu != self.is_cpu and not _state.reading:
            if result.is_cpu:
                _emit_read(start, name)
            else:
                try:
                    size = self.numel() * self.element_size()
                    # Also as a place: cuda(device, True), to(device, dtype, True).
                    asked = kwargs.get("non_blocking") or any(arg is True for arg in args[:3])
                    quick = int(bool(asked) and self.is_pinned())
                    REC.emit(events.H2D, start, now(), user_site(), size, quick)
                except Exception:
                    report_fault(name)
        return result

    return copy


def _timed_read(original, name):
    @unseen(original)
    # untested: runs under the name of another file, which coverage.py does not know
    def read(self, *args, **kwargs):
        if is_compiling() or not REC.on or is_traced() or self.is_cpu or _state.reading:
            return original(self, *args, **kwargs)
        _state.reading = True  # printing a tensor reads it many times; one event is enough
        start = now()
        try:
            return original(self, *args, **kwargs)
        finally:
            _state.reading = False
            _emit_read(start, name)

    return read
