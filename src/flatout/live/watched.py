"""A run that is followed from outside while it is recorded."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from flatout.live.follower import Follower
from flatout.live.history import BROKEN_OFF, History
from flatout.live.projection import Plan
from flatout.live.state import State, state_of


class Watched:
    """A run that is followed; ``look`` reads what is new."""

    def __init__(self, run: Path, plan: Plan, clock: Callable[[], float] = time.monotonic) -> None:
        self.run, self.plan = run, plan
        self.history = History()
        self._follower = Follower(run)
        self._clock = clock
        self._heard_s = clock()
        self._known_ns = -1

    def look(self) -> State:
        """Read what is new; the state of the run."""
        self.history.take(self._follower.look())
        if self.history.told_ns != self._known_ns:
            self._known_ns, self._heard_s = self.history.told_ns, self._clock()
        self.history.silent_s = self._clock() - self._heard_s
        if self.history.stop == BROKEN_OFF:
            self.history.take(self._follower.look(last=True))
        return state_of(self.history, self.plan)

    @property
    def over(self) -> bool:
        """True once the last look found that nothing more comes."""
        return self.history.stop is not None
