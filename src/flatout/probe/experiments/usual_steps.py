"""Which kind of steps takes most of a training's time, so that steps of this kind are looked at after the window.

A program may pass through steps of several kinds, such as those of a network that is trained on the features of
another one. Kinds are told from each other by the length of their backward passes.
"""

from typing import Any

from ..recorder import REC, now

AWAITED_NS = 15_000_000_000  # for usual steps, at most, before all that is looked at
_BITS = 64
_MOST_OF_BACKWARD = 10  # times the backward pass, that a step takes
_LEAST_OF_BEST = 0.5  # of the time that steps of the commonest kind take, for others to be as usual


class StepKinds:
    """The time of all steps, by the binary logarithm of their backward passes' length."""

    def __init__(self):
        self._ns: Any = [0] * _BITS
        self.waited_ns = 0

    def add(self, backward_ns, step_ns):
        """Count a step, without what came between it and the one before, such as an evaluation."""
        self._ns[backward_ns.bit_length()] += min(step_ns, _MOST_OF_BACKWARD * backward_ns)

    def share(self, backward_ns):
        """Share of all time in steps whose backward passes are half to twice as long, about; 1 before any step."""
        return self._within(backward_ns.bit_length())

    def most(self):
        """The largest such share."""
        return max(map(self._within, range(_BITS)))

    def _within(self, bits):
        return sum(self._ns[max(bits - 1, 0) : bits + 2]) / (sum(self._ns) or 1) if any(self._ns) else 1.0


KINDS = StepKinds()


class UsualStep:
    """Waits for a step of the commonest kind.

    Args:
        what: that will be looked at, as the record names it.
    """

    def __init__(self, what):
        self._what = what
        self._since_ns = 0
        self._seen = 0  # steps, all but the last of another kind
        self.over = False

    @property
    def awaited(self):
        """True from the first step that was not one."""
        return self._since_ns > 0 and not self.over

    def has_come(self, backward_ns):
        """True once a usual step has ended, or none has come for long; the record then has which of them it was."""
        if self.over:
            return True
        share, most = KINDS.share(backward_ns), KINDS.most()
        self._since_ns = self._since_ns or now()
        self._seen += 1
        waited_ns = now() - self._since_ns
        if share < _LEAST_OF_BEST * most and KINDS.waited_ns + waited_ns < AWAITED_NS:
            return False
        KINDS.waited_ns += waited_ns
        self.over = True
        shares = dict(REC.process.get("usual_steps") or {})
        REC.save_process(usual_steps={**shares, self._what: [round(share, 4), round(most, 4), self._seen]})
        return True
