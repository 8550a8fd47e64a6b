"""Work that a step could do without, looked for in the first steps after the window.

Padding, gradients that nothing uses or that are discarded, layers called on one piece of a batch at a time, and
features made anew in each pass.
"""

from typing import Any

import torch

from ..contract import KEPT_GRADIENTS, USED_GRADIENTS
from ..padding.first_batches import PaddingSeen
from ..recorder import REC
from .discarded_gradients import DiscardedGradients
from .frozen_modules import FrozenModules
from .gradients import UnusedGradients, names_of
from .repeated_modules import ModuleCalls
from .repeated_weights import RepeatedWeights


class UnneededWork:
    """The padding in batches, the gradients that no optimizer uses, and the weights that are used one call at a time.

    Args:
        compiled: the model is compiled: the graphs of its backward passes are not read.
    """

    def __init__(self, compiled):
        self._padding = PaddingSeen()
        self._calls = ModuleCalls()
        self._weights = RepeatedWeights(self._calls)
        self._repeated: Any = None  # as the record has it
        # In a group of processes, others wait for gradients that are left out.
        self._gradients: Any = None if compiled or _grouped() else UnusedGradients(self._weights)
        self._discarded: Any = None if self._gradients is None else DiscardedGradients()
        self._frozen: Any = None if compiled else FrozenModules()
        self._features: Any = None  # as the record has it
        self._first = True  # no block has begun

    def watch(self):
        """Look at the first backward passes; returns what ends that."""
        watching = [self._frozen] if self._frozen is not None else []
        if self._gradients is not None:
            # The first of them looks on after the others have ended.
            watching += [self._discarded, self._gradients, self._calls]
        ends = [one.watch() for one in watching]

        def end():
            for one in reversed(ends):
                one()

        return end

    def batch_arrived(self, batch):
        """Look at a batch for padding. One on a device is read in the first steps only, since that waits for it."""
        self._padding.look(batch, self._first)

    def step_ended(self):
        """The latest batch was trained on."""
        if self._frozen is not None:
            self._frozen.step_ended()
        seen = self._gradients
        self._padding.keep(*((seen.take_shapes(), seen.packed) if seen is not None else (None, False)))

    def decide(self, hooked):
        """The first steps are over.

        Args:
            hooked: the user has hooks on modules or tensors, which may need any gradient.
        """
        self._first = False
        self._calls.unwatch()
        if self._frozen is not None:
            self._frozen.unwatch()
            self._features = self._frozen.described()
        self._repeated = self._weights.described(names_of)
        if self._gradients is not None:
            self._gradients.stop_watching()
            if hooked and not self._gradients.kept_because:
                self._gradients.kept_because = "hooks may need the gradients"
            if hooked:
                self._discarded.kept_because = "hooks may need the gradients"
        self.save()

    def avoidable(self):
        """The changes that leave gradients out, by name: each makes it, and returns what undoes it."""
        found: Any = {}
        unused, discarded = self._gradients, self._discarded
        if unused is not None and unused.parameters and not unused.kept_because:
            found[USED_GRADIENTS] = unused.leave_out
        if discarded is not None and discarded.avoidable():
            found[KEPT_GRADIENTS] = discarded.leave_out
        return found

    def save(self):
        """Write into the record what was seen so far."""
        found: Any = {"padding": self._padding.described()}
        if self._gradients is not None and self._gradients.decided:
            found["unused_gradients"] = self._gradients.described()
            found["discarded_gradients"] = self._discarded.described()
        if self._repeated is not None:
            found["repeated_weight"] = self._repeated
        if self._features is not None:
            found["frozen_modules"] = self._features
        REC.save_process(**found)


def _grouped():
    return torch.distributed.is_available() and torch.distributed.is_initialized()
