"""A low-rate sampler of one thread's stack, which attributes time to functions.

The kernel's state letter is read first, with the interpreter lock released for that moment, so that a
thread that merely waits for the lock is not taken for one that waits for a disk.
"""

import os
import random
import sys
import threading
from typing import Any

from . import events
from .descriptors import close_own
from .lock_waits import UNKNOWN, LockWaits
from .open_files import OpenFiles
from .recorder import REC, now, report_fault
from .sites import MAX_FRAMES, describe_frame, is_user_file

INTERVAL_S = 0.05
END_WITHIN_S = 5.0  # a few ms, unless the machine is so busy that the thread waits long for a core
DEEPEST = 200  # frames that are searched for one of the user's own
MOST_STATES = 64  # descriptors of threads' states that are kept open
# Innermost files of a thread that waits for another one, or for work.
WAITS_IN = (
    os.sep + "threading.py",
    os.sep + "queue.py",
    os.sep + "selectors.py",
    os.path.join("futures", "_base.py"),
    os.path.join("futures", "thread.py"),
    os.path.join("multiprocessing", "connection.py"),
    os.path.join("multiprocessing", "queues.py"),
    os.path.join("multiprocessing", "pool.py"),
)
FILES_EVERY = 8  # stack samples between two samples of the open files

_PROBE_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep

# Below it lie the frames of the process that forked the worker: they do not run here.
_WORKER_ENTRY = "_worker_loop"

_thread: Any = None
_stop: Any = None
_holding = threading.Lock()  # while the sampler holds frames, which keep the user's local variables alive
_jitter = random.Random(0x5EED)  # a separate generator: the user's random sequence must not change


def start():
    """Begin to sample the training thread (the main thread until that is known)."""
    global _thread, _stop
    if _thread is not None and _thread.is_alive():
        return
    _stop = threading.Event()
    _thread = threading.Thread(target=_sample_until, args=(_stop,), name="flatout-stacks", daemon=True)
    _thread.start()


def stop():
    """End the sampler; the open-files summary is written."""
    global _thread
    thread, _thread = _thread, None
    if thread is not None and thread.is_alive():
        _stop.set()
        thread.join(END_WITHIN_S)


def running():
    """True if the sampler runs in this process."""
    return _thread is not None and _thread.is_alive()


def wait_until_frames_are_released():
    """Wait until objects that only a sampled frame refers to are gone: some microseconds, as a rule."""
    if _holding.acquire(timeout=END_WITHIN_S):
        _holding.release()


def forget():
    """In a forked child: the thread does not exist here."""
    global _thread, _holding
    _thread = None
    _holding = threading.Lock()


def _sample_until(stop_event):
    try:
        _Sampler().run(stop_event)
    except Exception:
        report_fault("stack sampler")


class _Sampler:
    def __init__(self):
        self.stacks = {}
        self.states = {}  # native id -> descriptor of /proc/self/task/ID/stat
        self.natives = {}
        self.lock = LockWaits()
        self.files = OpenFiles()
        self.started = now()
        self.previous = {}  # thread ident -> when it was sampled last
        self.count = 0

    def run(self, stop_event):
        # The sampler is restarted after each fork: a random first pause lets it sample the time right after a fork too.
        pause_s = INTERVAL_S * _jitter.random()
        try:
            while not stop_event.wait(pause_s):
                pause_s = INTERVAL_S * (0.5 + _jitter.random())
                if REC.on:
                    with _holding:
                        frame = self.sample(REC.training_thread or threading.main_thread().ident)
                        self.sample_a_fetcher()
                        if REC.training_thread is not None and frame is not None and _waits(frame):
                            self.sample_a_maker()
                        frame = None
                    self.look_at_files()
                REC.flush()
        finally:
            REC.flush()
            self.close_states()
            self.lock.close()
            if REC.names is not None:
                self.files.write(REC.names)

    def sample_a_fetcher(self):
        """One of the threads that make batches in this process, in turn: each pause costs two samples at most."""
        fetchers = list(REC.fetchers)
        if fetchers:
            self.sample(fetchers[self.count % len(fetchers)])

    def sample_a_maker(self):
        """One of the user's threads at work while the training waits, in turn: one of them may make its input."""
        not_these = (REC.training_thread, threading.get_ident())
        makers = [
            ident
            for ident, frame in sys._current_frames().items()
            if ident not in not_these and ident not in REC.fetchers and not _waits(frame) and _is_of_user(frame)
        ]
        if makers:
            self.sample(makers[self.count % len(makers)])

    def look_at_files(self):
        """Note the open files now and then."""
        self.count += 1
        if self.count % FILES_EVERY == 0:
            self.files.look()
            if self.count % (FILES_EVERY * 10) == 0:
                self.files.write(REC.names)

    def sample(self, ident):
        """Record where a thread is; returns its frame, or None if it has ended."""
        doing = self.lock.state() if ident == self.lock.ident else UNKNOWN
        state = self._state(ident)
        frames = sys._current_frames()
        # This function's own frame, which refers to ``frames``: all of them, and the user's local variables, would live
        # until the garbage collector finds that circle.
        frames.pop(threading.get_ident(), None)
        frame = frames.get(ident)
        if frame is None:
            REC.fetchers.pop(ident, None)  # the thread has ended
            return None
        taken = now()
        number = self._number(frame)
        REC.emit(events.STACK, taken, taken, number, taken - self.previous.get(ident, self.started), state, ident)
        self.previous[ident] = taken
        if len(frames) > 1 and ident == REC.training_thread:
            self.lock.look(taken, ident, frames, doing, self._number)
        return frame

    def close_states(self):
        """Close the descriptors of the threads' states."""
        for fd in self.states.values():
            close_own(fd, "/proc/")
        self.states.clear()

    def _number(self, frame, thread=None):
        """Name id of a stack; that of another thread than the sampled one has the thread's name."""
        key = (_frames(frame), thread)
        number = self.stacks.get(key)
        if number is None:
            fields: Any = {"frames": [describe_frame(code, line) for code, line in key[0]]}
            if thread is not None:
                fields["thread"] = str(thread)
            number = self.stacks[key] = REC.names.add("stack", **fields)
        return number

    def _state(self, ident):
        native = self.natives.get(ident)
        if native is None:
            for thread in threading.enumerate():
                if thread.ident == ident:
                    native = self.natives[ident] = thread.native_id
        fd = self.states.get(native)
        if fd is None:
            if len(self.states) >= MOST_STATES:  # of threads that have ended, mostly
                self.close_states()
            try:
                fd = os.open("/proc/self/task/%s/stat" % native, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                fd = -1
            self.states[native] = fd
        if fd < 0:
            return 0
        try:
            return os.pread(fd, 128, 0).rpartition(b")")[2].lstrip()[0]
        except (OSError, IndexError):
            self.natives.pop(ident, None)  # ended; a later thread may have the same ident
            return 0


def _waits(frame):
    return frame.f_code.co_filename.endswith(WAITS_IN)


def _is_of_user(frame):
    for _ in range(DEEPEST):
        if frame is None:
            return False
        if is_user_file(frame.f_code.co_filename):
            return not frame.f_code.co_filename.startswith(_PROBE_FOLDER)
        frame = frame.f_back
    return False


def _frames(frame):
    """The innermost frames, and the first one of the user's own where it lies further out: it is the one to name."""
    found: Any = []
    own = False
    for _ in range(DEEPEST):
        if frame is None or frame.f_code.co_name == _WORKER_ENTRY:
            break
        path = frame.f_code.co_filename
        if not path.startswith(_PROBE_FOLDER):
            own = own or is_user_file(path)
            if len(found) < MAX_FRAMES or (own and is_user_file(path)):
                found.append((frame.f_code, frame.f_lineno or 0))
            if own and len(found) >= MAX_FRAMES:
                break
        frame = frame.f_back
    return tuple(found)
