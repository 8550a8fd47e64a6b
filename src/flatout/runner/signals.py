"""Ctrl-C, SIGTERM and SIGHUP noted for the loop that watches a recording, instead of ending this process."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType

_STOPS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "terminated"}


class EndingSignals:
    """From entering to leaving, these signals only set ``stop``; more of them change nothing.

    A signal that is ignored stays so, here and in the command, which inherits that (``nohup``, ``trap '' HUP``).

    Attributes:
        stop: "interrupted" or "terminated", by the first that came; None: none came.
        number: Of that signal; 0: none came.
    """

    def __init__(self) -> None:
        self.stop: str | None = None
        self.number = 0
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> EndingSignals:
        for number in _STOPS:
            # None: a handler that was not set from Python, which could not be put back.
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.stop is None:
            self.stop, self.number = _STOPS[signal.Signals(number)], int(number)
