"""When a stack is sampled: while the thread computes, not only where it next lets the interpreter lock go.

Only who has the lock can look at frames, so a thread that computes with the lock is seen when it lets go: at the latest
when another thread has waited for the switch interval (5 ms) and Python's loop notices that, which is right after the
call that took so long; but earlier wherever it opens a file or calls torch. Two thirds of the samples of a thread that
parses text for 6 ms and then opens a file showed the opening. Where a wait for the lock ended in this
way, the moment is drawn again with a short interval, until the thread is caught at what it computes.
"""

import os
import random
import sys
from time import sleep
from typing import Any

from .descriptors import close_own
from .recorder import now

SHORT_S = 1e-4  # the switch interval while a moment is drawn again
LATE_S = 3e-4  # a thread that waits for no lock was woken within 0.1 ms, on one machine
MOST_DRAWS = 5

_jitter = random.Random(0x5EED)  # a separate generator: the user's random sequence must not change


class Moments:
    """Waits for the moments of one thread's samples, in the sampler's thread.

    Args:
        pread: the system's, which keeps the interpreter lock; None: there is none, or no such lock.
        buffer: for what it reads.
    """

    def __init__(self, pread, buffer):
        self.with_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
        self._pread, self._buffer = pread, buffer
        self._schedstat: Any = None  # descriptor of this thread's, once it was looked for

    def close(self):
        """Give the descriptor back."""
        if self._schedstat is not None:
            close_own(self._schedstat, "/proc/")
        self._schedstat = None

    def wait(self, ended, pause_s):
        """Wait for a pause.

        Args:
            ended: the event that ends the sampling.
            pause_s: seconds until the moment.

        Returns:
            None if the sampling ends. True if another thread held the interpreter lock and let it go where it wanted,
            so that the moment should be drawn again; False if that thread was stopped, or none held the lock.
        """
        began, queued = now(), self._queued_ns()
        if ended.wait(pause_s):
            return None
        late_s = self._late_s(began, queued, pause_s)
        # While this thread waits for a core, the lock is let go and taken again: several short waits look like one.
        is_short = late_s < sys.getswitchinterval() or self._queued_ns() - queued > LATE_S * 1e9
        return self.with_lock and late_s > LATE_S and is_short

    def draw_again(self):
        """Wait for a moment near this one at which another thread holds the lock; none may be found."""
        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(SHORT_S)
        try:
            short_s = sys.getswitchinterval()
            for _ in range(MOST_DRAWS):
                pause_s = interval_s * _jitter.random()
                began, queued = now(), self._queued_ns()
                sleep(pause_s)
                if self._late_s(began, queued, pause_s) > LATE_S:
                    break
        finally:
            # The program may have set one of its own meanwhile.
            if sys.getswitchinterval() == short_s:
                sys.setswitchinterval(interval_s)

    def _late_s(self, began, queued, pause_s):
        """Seconds that this thread came late because it waited for the lock, not for a core."""
        return (now() - began - (self._queued_ns() - queued)) / 1e9 - pause_s

    def _queued_ns(self):
        """Nanoseconds that this thread has waited for a core until now; 0: not known."""
        if self._pread is None:
            return 0
        if self._schedstat is None:
            try:
                self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                self._schedstat = -1
        count = self._pread(self._schedstat, self._buffer, len(self._buffer), 0)
        try:
            return int(self._buffer.raw[: max(count, 0)].split()[1])
        except (IndexError, ValueError):
            return 0
