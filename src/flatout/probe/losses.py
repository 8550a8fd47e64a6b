"""The loss of each backward pass, for a trial's check. A loss on a GPU is read later, without waiting for it."""

import collections
import functools
import os

import torch

from .contract import LOSS_METRIC, LOSSES_VARIABLE
from .metrics import note
from .recorder import REC, report_fault

wanted = os.environ.get(LOSSES_VARIABLE) == "1"
MOST_PENDING = 256

_pending: collections.deque[tuple["torch.cuda.Event", torch.Tensor]] = collections.deque()  # the copy is pinned
_unscaled: list[torch.Tensor] = []  # the last loss that was given to a gradient scaler


def install():
    """Watch gradient scalers: the loss before scaling counts."""
    scaler = getattr(getattr(torch, "amp", None), "GradScaler", None)
    if not wanted or scaler is None:
        return
    original = scaler.scale

    @functools.wraps(original)
    # untested: losses are compared in trials, which serial tests run
    def scale(self, outputs):
        if isinstance(outputs, torch.Tensor):
            _unscaled[:] = [outputs.detach()]
        return original(self, outputs)

    scaler.scale = scale


def seen(tensors):
    """A backward pass began at ``tensors``."""
    try:
        loss = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors))
        if _unscaled:
            loss = _unscaled.pop()
        if loss.numel() != 1:
            return
        loss = loss.detach()
        if loss.device.type == "cpu":
            note(LOSS_METRIC, loss.reshape(()))
        else:
            _read_later(loss)
    except Exception:
        report_fault("losses")


def _read_later(loss):
    copy = torch.empty(1, dtype=torch.float32, pin_memory=True)
    copy.copy_(loss.reshape(1), non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    _pending.append((event, copy))
    while _pending and (_pending[0][0].query() or len(_pending) > MOST_PENDING):
        event, copy = _pending.popleft()
        event.synchronize()
        note(LOSS_METRIC, copy[0])
    if not REC.on:
        _pending.clear()
