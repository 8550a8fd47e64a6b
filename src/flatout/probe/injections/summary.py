"""What ``flatout apply`` says at the end of a training: what was put in, what was refused, and what nothing took."""

import atexit
import functools
import json
import os
import sys

from ..contract import APPLIED_VARIABLE
from ..settings import SETTINGS
from ..unbound import before_exit

_SOME = "%s leaves a function alone: %s"  # and takes others
_LOST = "%s had no effect: nothing in this training took it"
_UNKNOWN = "%s: nothing in this process took it, and whether the processes that it spawned did is not known"


class Summary:
    """Written to standard error as a process ends, but for those that are forked or spawned by another.

    Settings that had no effect are named only where something is trained or taken: a launcher trains nothing.
    """

    def __init__(self, injected):
        self._injected = injected
        self._pid = os.getpid()
        self._trains = self._written = False
        self._others_s = _others_s()
        atexit.register(self.write)
        before_exit(self.write)

    def watch_optimizers(self, optimizer):
        """Notice that an optimizer is made, once torch.optim.optimizer is imported.

        A hook of torch's would not do: it cannot be removed from within, and compilers see it.
        """
        self._notice(optimizer.Optimizer, "__init__")

    def watch_backward(self, autograd):
        """Notice a backward pass, once torch.autograd is imported: trainings without an optimizer have some."""
        self._notice(autograd, "backward")

    def _notice(self, owner, name):
        original = getattr(owner, name)

        @functools.wraps(original)
        def noticed(*args, **kwargs):
            self._trains = True
            return original(*args, **kwargs)

        setattr(owner, name, noticed)

    def write(self):
        """Write what there is to say, once."""
        if os.getpid() != self._pid or self._written or _is_spawned():
            return
        self._written = True
        try:
            where = self._where()
            for line in self.lines():
                sys.stderr.write("flatout: %s%s\n" % (line, where))
            sys.stderr.flush()
        except (OSError, ValueError):  # it is closed
            pass

    def _where(self):
        """Names the process if it is not the one that was started: a command may train several times."""
        if os.environ.get(APPLIED_VARIABLE) in (None, str(self._pid)):
            return ""
        return " (%s, process %d)" % (os.path.basename(sys.argv[0] or "python"), self._pid)

    def lines(self):
        """One line for what was set, and one for each setting that was not."""
        applied, refused = self._injected.taken(), self._injected.refused
        if "torch" not in sys.modules:
            if os.environ.get(APPLIED_VARIABLE) != str(self._pid) or _others_s() > self._others_s:
                return []
            lost = [name for name in self._injected.wanted if not SETTINGS[name].at_start]
            return ["torch was not imported: %s had no effect" % ", ".join(lost)] if lost else []
        found = []
        taken = self._trains or any(not _set_at_import(name) for name in applied)
        leads = os.environ.get("RANK", "0") == "0"
        if taken and applied and leads:
            found.append("set " + ", ".join("%s=%s" % (name, _written(value)) for name, value in applied.items()))
        stopped, never = "%s was stopped: %s", "%s could not be set: %s"
        for name, why in refused.items():
            of_functions = SETTINGS[name].several and SETTINGS[name].form
            some = applied.get(name) is not None and of_functions
            found.append(((_SOME if some else stopped) if name in applied else never) % (name, why))
        found += [line for at_end in self._injected.at_end for line in at_end()]
        if taken and leads:
            lost = [name for name in self._injected.wanted if name not in applied and name not in refused]
            found += [(_UNKNOWN if _has_spawned() else _LOST) % name for name in lost]
        return found


def _set_at_import(name):
    """True for a setting that any process takes which imports torch: a launcher, for one."""
    return SETTINGS[name].at_start or SETTINGS[name].injector == "backends"


def _others_s():
    """CPU seconds of the processes that this one waited for: they may have trained."""
    times = os.times()
    return times.children_user + times.children_system


def _is_spawned():
    multiprocessing = sys.modules.get("multiprocessing")
    return multiprocessing is not None and multiprocessing.parent_process() is not None


def _has_spawned():
    """True if this process started others that are no copies of it: what these take does not show here."""
    return any("multiprocessing.popen_%s" % way in sys.modules for way in ("spawn_posix", "forkserver"))


def _written(value):
    """As ``--set`` takes it."""
    return value if isinstance(value, str) else json.dumps(value)
