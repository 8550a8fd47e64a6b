"""Reliable Ctrl-C for a training: Python drops exceptions raised in a destructor or a callback."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytorch_lightning as pl


class Interrupt(pl.Callback):  # type: ignore[misc]
    """Raises KeyboardInterrupt at the next step if the one raised by the signal was dropped."""

    def __init__(self) -> None:
        self._pressed = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Watch for Ctrl-C inside the block; does nothing outside the main thread, where no signal arrives."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def pressed(number: int, frame: FrameType | None) -> None:
            self._pressed = True
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGINT, pressed)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def on_train_batch_start(self, *args: Any, **kwargs: Any) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed."""
        if self._pressed:
            raise KeyboardInterrupt
