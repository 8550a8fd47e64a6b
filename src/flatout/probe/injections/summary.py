"""What ``flatout apply`` says at the end of a training: what was put in, what was refused, and what nothing took."""

import atexit
import functools
import json
import os
import sys


class Summary:
    """Written to standard error as the process ends, by the process that was started, not by what it forks.

    Settings that had no effect are named only where an optimizer was made: a launcher trains nothing.
    """

    def __init__(self, injected):
        self._injected = injected
        self._pid = os.getpid()
        self._trains = False
        atexit.register(self.write)

    def watch(self, optimizer):
        """Notice that an optimizer is made, once torch.optim.optimizer is imported.

        A hook of torch's would not do: it cannot be removed from within, and compilers see it.
        """
        kind = optimizer.Optimizer
        original = kind.__init__

        @functools.wraps(original)
        def __init__(made, *args, **kwargs):
            self._trains = True
            original(made, *args, **kwargs)

        setattr(kind, "__init__", __init__)  # noqa: B010 - mypy lets no method be assigned

    def write(self):
        """Write what there is to say."""
        if os.getpid() != self._pid:
            return
        try:
            for line in self.lines():
                sys.stderr.write("flatout: %s\n" % line)
        except (OSError, ValueError):  # it is closed
            pass

    def lines(self):
        """One line for what was set, and one for each setting that was not."""
        found, applied, refused = [], self._injected.applied, self._injected.refused
        leads = os.environ.get("RANK", "0") == "0"
        if self._trains and applied and leads:
            found.append("set " + ", ".join("%s=%s" % (name, _written(value)) for name, value in applied.items()))
        found += ["%s could not be set: %s" % item for item in refused.items()]
        if self._trains and leads:
            lost = [name for name in self._injected.wanted if name not in applied and name not in refused]
            found += ["%s had no effect: nothing in this training took it" % name for name in lost]
        return found


def _written(value):
    """As ``--set`` takes it."""
    return value if isinstance(value, str) else json.dumps(value)
