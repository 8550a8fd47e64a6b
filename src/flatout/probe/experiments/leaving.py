"""Sees that a training leaves its steps: an exception, a change outside of the process, a checkpoint or a validation.

Exceptions are seen where they enter a frame that waits for the next batch, before any handler of the script: by
``sys.monitoring``, or with Python 3.11 and older by a trace function.
"""

# untested: only in trainings that flatout ends, which save no coverage

import os
import sys
import threading
from typing import Any

from .. import events
from ..recorder import REC
from ..sites import PROBE_FOLDER
from .discarded_logs import DiscardedLogs

_LOADER = os.path.join("torch", "utils", "data", "dataloader.py")
_FOR_ITERATION = (StopIteration, StopAsyncIteration)
_NO_FILES = ("/dev/", "/proc/", "/sys/")
# Events of sys.addaudithook that change something outside of the process, and what the training does then.
_CHANGES = {
    "subprocess.Popen": "starts a process",
    "os.system": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.fork": "starts a process",
    "os.forkpty": "starts a process",
    "os.exec": "starts a program",
    "os.rename": "renames %s",
    "os.remove": "removes %s",
    "os.mkdir": "makes %s",
    "os.rmdir": "removes %s",
    "os.link": "makes the link %s",
    "os.symlink": "makes the link %s",
    "os.truncate": "truncates %s",
    "sqlite3.connect": "opens the database %s",
    "socket.connect": "connects to another program",
}
_MADE = ("os.link", "os.symlink")  # what changes is their second path
_KINDS = {events.CHECKPOINT: "writes a checkpoint", events.VALIDATION: "validates"}


class Leaving:
    """Calls ``seen`` with a sentence when the training thread leaves its steps.

    Args:
        seen: does not return.
    """

    def __init__(self, seen):
        self._seen = seen
        self._thread = threading.get_ident()
        self._exceptions: Any = _monitored if hasattr(sys, "monitoring") else _traced
        self._stop: Any = None  # ends the watch for exceptions
        self._codes: Any = {}  # code of the frames that wait for a batch -> None
        self._usual: Any = set()  # exceptions that unchanged steps raise too
        self._awaited = False  # files and checkpoints
        self._logs = DiscardedLogs(_is_users)
        sys.addaudithook(self._audit)

    @property
    def free(self):
        """True if watching exceptions costs steps nothing."""
        return self._exceptions is _monitored

    def watch(self, wanted):
        """Begin or end to watch exceptions; False where another tool watches them."""
        if wanted and self._stop is None:
            self._stop = self._exceptions(self._raised)
        elif not wanted and self._stop is not None:
            stop, self._stop = self._stop, None
            stop()
        return not wanted or self._stop is not None

    def await_files(self, wanted):
        """Begin or end to watch for files, checkpoints and validations; logs are not written meanwhile."""
        self._awaited = wanted
        self._logs.discard(wanted)
        REC.leaving = self._begins if wanted else None

    def look(self, frame):
        """Note the frames that wait for the next batch."""
        if self._stop is None:
            return
        self._codes.clear()
        while frame is not None:
            path = frame.f_code.co_filename
            if not path.startswith(PROBE_FOLDER) and not path.endswith(_LOADER):
                self._codes[frame.f_code] = None
                if not self.free:
                    frame.f_trace, frame.f_trace_lines = _local(self._raised), False
            frame = frame.f_back

    def _raised(self, code, place, error):
        if self._stop is None or code not in self._codes or threading.get_ident() != self._thread:
            return
        if not isinstance(error, Exception) or isinstance(error, _FOR_ITERATION):
            return
        raised = (code, place, type(error))
        if not self._awaited:
            self._usual.add(raised)
        elif raised not in self._usual:
            text = str(error).strip().split("\n")[0][:200]
            self._seen("it raised %s: %s" % (type(error).__name__, text))

    def _begins(self, kind):
        if kind in _KINDS:
            self._left(_KINDS[kind])

    def _audit(self, event, args):
        if not self._awaited:
            return
        if event == "open":
            if _writes(*args):
                self._left("opens %s to write" % _name(args[0]))
        elif event in _CHANGES:
            what = _CHANGES[event]
            if "%s" not in what:
                self._left(what)
                return
            path = args[1] if event in _MADE else args[0]
            if not isinstance(path, (str, bytes, os.PathLike)) or _is_users(path):
                self._left(what % _name(path))

    def _left(self, what):
        if threading.get_ident() == self._thread:
            self._seen("it " + what)


def _writes(path, mode, flags):
    """True for a file of the script that is opened to write."""
    if not isinstance(path, (str, bytes, os.PathLike)) or not isinstance(flags, int):
        return False
    return flags & os.O_ACCMODE != os.O_RDONLY and _is_users(path)


def _is_users(path):
    path = os.path.abspath(os.fsdecode(path))
    # Python keeps what it has compiled for an import.
    return not path.startswith((*_NO_FILES, REC.run)) and "__pycache__" not in path


def _name(path):
    return os.path.basename(os.fsdecode(path)) if isinstance(path, (str, bytes, os.PathLike)) else "a file"


def _monitored(raised):
    """Have the exceptions of all frames reported; returns what ends it, or None if there is no free place."""
    monitoring: Any = getattr(sys, "monitoring", None)
    tool = next((number for number in (4, 3, 5) if monitoring.get_tool(number) is None), None)
    if tool is None:
        return None
    monitoring.use_tool_id(tool, "flatout")
    monitoring.register_callback(tool, monitoring.events.RAISE, raised)
    monitoring.set_events(tool, monitoring.events.RAISE)

    def stop():
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)

    return stop


def _traced(raised):
    """The same before Python 3.12: of the frames whose ``f_trace`` is set."""
    if sys.gettrace() is not None:
        return None
    sys.settrace(_no_trace)
    return lambda: sys.settrace(None)


def _no_trace(frame, event, argument):
    return None


def _local(raised):
    def traced(frame, event, argument):
        if event == "exception":
            raised(frame.f_code, frame.f_lineno, argument[1])
        return traced

    return traced
