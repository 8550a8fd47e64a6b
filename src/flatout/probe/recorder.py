"""The one recorder of a process: where every hook sends its events."""

import collections
import functools
import os
import platform
import sys
import time
from typing import Any

from . import events
from .contract import DEBUG_VARIABLE
from .writer import EventFile, NamesFile, write_json

now = time.monotonic_ns

RECENT = 64
OUTLYING = 2  # times the usual step: from there on its mean is that of single long ones
WORKER_CHUNK_BYTES = 256 << 10
COMMAND_RECORD, COMMAND_STOP, COMMAND_TRACE, COMMAND_EXPERIMENT, COMMAND_REPLAY = 0, 1, 2, 3, 4


class Recorder:
    """State of the probe in this process. Cheap until :meth:`open` is called (torch was imported).

    Hooks check ``on`` first: False before opening, after a stop command, and after a fault.
    """

    def __init__(self):
        self.on = False
        self.run: Any = None
        self.control: Any = None
        self.emit: Any = _discard
        self._reset()

    def _reset(self):
        self.process: Any = {}
        self.failure: Any = {}  # the exception that ended the process, as its JSON shows it
        self.id: Any = None
        self.file: Any = None
        self.names: Any = None
        self.pending_imports: Any = []
        self.iterations = self.backwards = self.optimizer_steps = self.wait_ns = 0
        self.first_step_ns = self.last_step_ns = self.flags = 0
        self.recent: Any = collections.deque(maxlen=RECENT)  # when the latest backward passes ended
        self.fetchers: Any = {}  # idents of threads that make batches in this process -> None
        self.training_thread: Any = None  # thread ident, known at the first backward or loader iteration
        self.live: Any = None  # the live trial of this process, if the run has a plan for one
        self.leaving: Any = None  # called with the kind of a checkpoint or validation that begins, if they are awaited

    def attach(self, run, control):
        """Announce this process in the run folder."""
        self.run = run
        self.control = control
        start = now()
        self.id = "%d-%d" % (os.getpid(), start)
        environment = os.environ.get
        self.process = {
            "pid": os.getpid(),
            "ppid": os.getppid(),
            "start_ns": process_start_ns() or start,
            "argv": list(getattr(sys, "orig_argv", None) or getattr(sys, "argv", [])),
            "executable": sys.executable,
            "python": platform.python_version(),
            "cwd": _cwd(),
            "torch": None,
            "cuda": None,
            "device_count": None,
            "rank": _integer(environment("RANK")),
            "local_rank": _integer(environment("LOCAL_RANK")),
            "world_size": _integer(environment("WORLD_SIZE")),
            "worker": None,
            "threads": None,
            "start_method": None,
            "end_ns": None,
            "exit": None,
        }
        self.save_process()

    def save_process(self, **fields):
        """Update this process's JSON file."""
        self.process.update(fields)
        write_json(self._path("json"), self.process)

    def _path(self, suffix):
        return os.path.join(self.run, "processes", "%s.%s" % (self.id, suffix))

    def open(self, chunk=events.HEADER_BYTES * 256):
        """Open the event file; afterwards hooks record."""
        if self.file is not None:
            return
        self.names = NamesFile(self._path("names"))
        self.file = EventFile(self._path("events"), chunk)
        self.emit = self.file.emit
        self.on = self.control.command() != COMMAND_STOP
        for module, start, end in self.pending_imports:
            self.emit(events.IMPORT, start, end, self.names.text(module))
        self.pending_imports.clear()

    def after_fork_in_child(self):
        """Start a separate record in a forked child; the parent's files are left alone."""
        file, was_on, control = self.file, self.on, self.control
        inherited = {name: self.process.get(name) for name in ("torch", "cuda", "schedstat", "io", "not_patched")}
        self.on = False
        self.emit = _discard
        self._reset()
        try:
            if file is not None:
                file.abandon()
        except OSError:
            pass
        self.attach(self.run, control)
        self.process.update(inherited)
        if was_on:
            self.open(WORKER_CHUNK_BYTES)

    def flush(self):
        """Put the events noted so far into the file."""
        if self.file is not None:
            self.file.flush()

    def flush_quietly(self):
        """The same, where no exception may escape."""
        try:
            self.flush()
        except Exception:
            report_fault("exit")

    def step_ns(self, units):
        """Time of a step, as planning needs it: not that of the first one, which may try out algorithms for seconds.

        Args:
            units: steps so far.
        """
        mean = max(self.last_step_ns - self.first_step_ns, 1) / max(units - 1, 1)
        ends = list(self.recent)
        gaps = sorted(after - before for before, after in zip(ends, ends[1:]))
        if not gaps:
            return mean
        usual = gaps[len(gaps) // 2] * self.backwards / max(units, 1)
        return min(mean, OUTLYING * max(usual, 1))

    def publish(self):
        """Publish progress in the file's header, flush the events, and obey the control page."""
        self.file.flush()
        self.file.live(
            self.iterations,
            self.backwards,
            self.optimizer_steps,
            self.wait_ns,
            self.first_step_ns,
            self.last_step_ns,
            self.file.lost,
            self.flags,
        )
        command = self.control.command()
        if command != COMMAND_RECORD:
            self.on = False
        return command

    def close(self, exit_=None):
        """Note the end of this process."""
        self.on = False
        self.flush()
        self.save_process(end_ns=now(), exit=exit_)


# untested: stands where nothing is to be done
def _discard(*args, **kwargs):
    return None


def _integer(text):
    try:
        return int(text)
    except (TypeError, ValueError):
        return None


def _cwd():
    try:
        return os.getcwd()
    except OSError:
        return None


def process_start_ns():
    """CLOCK_MONOTONIC at which the kernel started this process; None where /proc does not say."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        since_boot = ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        # /proc counts from boot, suspended time included; CLOCK_MONOTONIC does not count that.
        return since_boot - (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - now())
    except (OSError, ValueError, AttributeError, IndexError):
        return None


def quietly(function):
    """Run a piece of the probe so that its faults end the recording, never the training."""

    @functools.wraps(function)
    def guarded(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except Exception:
            report_fault(function.__name__)
            return None

    return guarded


def report_fault(where):
    """Switch the recorder off after a fault of the probe, and note it in the record."""
    REC.on = False
    try:
        if REC.file is not None:
            REC.flags |= events.FAILED
            REC.file.flags(REC.flags)
        import traceback

        text = traceback.format_exc(limit=-3)
        if os.environ.get(DEBUG_VARIABLE):
            sys.stderr.write(text)
        REC.save_process(fault="%s: %s" % (where, text[-800:]))
    except Exception:
        pass


REC = Recorder()
