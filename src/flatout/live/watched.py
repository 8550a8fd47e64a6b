"""A run that is followed from outside while it is recorded."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from flatout.live.follower import Follower
from flatout.live.history import History
from flatout.live.projection import Plan
from flatout.live.state import State, state_of

# The machine is sampled twice a second as long as a recording goes on, even if the training hangs.
SILENT_S = 60.0


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
        if self.history.now_ns != self._known_ns:
            self._known_ns, self._heard_s = self.history.now_ns, self._clock()
        return state_of(self.history, self.plan)

    @property
    def silent_s(self) -> float:
        """Time since anything new was seen."""
        return self._clock() - self._heard_s

    @property
    def over(self) -> str | None:
        """Why there is nothing more to come; None: the recording goes on."""
        if self.history.ended:
            return "ended"
        return "broken off" if self.silent_s > SILENT_S else None
