"""Two steps of a training, watched operator by operator as after the window."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

from flatout.probe.inspection import repeated_work
from flatout.probe.recorder import REC


def watched(monkeypatch: pytest.MonkeyPatch, loss: Callable[[], Tensor]) -> dict[str, Any]:
    """What the record gets; the loss is made twice, and read as most trainings do."""
    saved: dict[str, Any] = {}
    monkeypatch.setattr(REC, "save_process", lambda **found: saved.update(found))
    monkeypatch.setattr(REC, "training_thread", threading.get_ident())
    mode = repeated_work.RepeatedWork()
    for _ in range(2):
        mode.begin()
        try:
            made = loss()
            made.backward()
            made.item()
        finally:
            mode.end(True)
            repeated_work.leave()
    return saved
