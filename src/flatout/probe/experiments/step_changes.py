"""What can be changed in a step for a block of steps: settings for debugging, gradients, threads."""

import json
import os
from typing import Any

import torch

from .. import debugging
from ..contract import HOOKS, THREADS
from ..recorder import REC

# These leave compiled code as it is; any other change would have it compiled again.
OUTSIDE_COMPILED = ("trace_function", "profile_function", "monitoring_tool", "tracemalloc")


class StepChanges:
    """The changes of one training.

    Args:
        compiled: the model is compiled.
        hooks: timers for the user's hooks.
        work: that a step does in vain.
    """

    def __init__(self, compiled, hooks, work):
        self._compiled = compiled
        self._hooks = hooks
        self._work = work
        self._avoidable: Any = {}  # change -> makes it

    def possible(self, noticed):
        """Names of what can be changed, the most telling first.

        Args:
            noticed: settings for debugging that were on earlier.
        """
        found = list(dict.fromkeys([*noticed, *debugging.on()]))
        if self._compiled:
            return [name for name in found if name in OUTSIDE_COMPILED]
        if self._hooks.spent:
            found.append(HOOKS)
        self._avoidable = self._work.avoidable()
        found += self._avoidable
        if not torch.cuda.is_initialized():
            found += [THREADS + str(count) for count in _thread_counts()]
        return found

    def found_late(self):
        """Names of gradients that can be left out, as was not known before."""
        found = {name: make for name, make in self._work.avoidable().items() if name not in self._avoidable}
        self._avoidable.update(found)
        return list(found)

    def apply(self, change):
        """Make a change; returns what undoes it."""
        if change == HOOKS:
            return self._hooks.install()
        if change in self._avoidable:
            return self._avoidable[change]()
        if not change.startswith(THREADS):
            return debugging.switch_off(change)
        before = torch.get_num_threads()
        torch._C.set_num_threads(int(change[len(THREADS) :]))
        return lambda: torch._C.set_num_threads(before)


def _thread_counts():
    """Numbers of intra-op threads to try: as many as there are cores, one, and half as many as cores."""
    try:
        with open(os.path.join(REC.run, "machine.json")) as file:
            cores = int(json.load(file)["cores"]["usable"])
    except (OSError, ValueError, KeyError, TypeError):
        cores = len(os.sched_getaffinity(0))
    tried = dict.fromkeys((max(cores, 1), 1, max(cores // 2, 1)))
    return [count for count in tried if count != torch.get_num_threads()]
