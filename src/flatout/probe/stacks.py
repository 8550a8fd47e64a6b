"""A low-rate sampler of one thread's stack, which attributes time to functions.

The kernel's state letter is read right after the frames, with the interpreter lock released for that moment, so that a
thread that merely waits for the lock is not taken for one that waits for a disk.
"""

import os
import random
import sys
import threading
from types import FrameType
from typing import Any

from . import events
from .descriptors import close_own
from .lock_waits import UNKNOWN, LockWaits
from .open_files import OpenFiles
from .recorder import REC, now, report_fault
from .sampling_moment import Moments
from .sites import MAX_FRAMES, PROBE_FOLDER, describe_frame, is_user_file

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
        self.moments = Moments(self.lock.pread, self.lock.buffer)
        self.started = now()
        self.previous = {}  # thread ident -> when it was sampled last
        self.count = 0

    def run(self, stop_event):
        # The sampler is restarted after each fork: a random first pause lets it sample the time right after a fork too.
        pause_s = INTERVAL_S * _jitter.random()
        try:
            while True:
                again = self.moments.wait(stop_event, pause_s)
                if again is None:
                    break
                pause_s = INTERVAL_S * (0.5 + _jitter.random())
                if REC.on:
                    with _holding:
                        self.sample(again)
                    self.look_at_files()
                REC.flush()
        finally:
            REC.flush()
            self.close_states()
            self.moments.close()
            self.lock.close()
            if REC.names is not None:
                self.files.write(REC.names)

    def sample(self, again=False):
        """Record where the training thread is, and at most one thread that fetches and one that makes input.

        Args:
            again: draw the moment again where no other thread can lose by that.
        """
        training = REC.training_thread or threading.main_thread().ident
        frames = self.frames()
        # Another thread at work would get the lock more often meanwhile.
        if again and not any(_works(frame) for ident, frame in frames.items() if ident != training):
            frames.clear()
            self.moments.draw_again()
            frames = self.frames()
        taken = now()
        # Where the threads are, before anything lets the lock go.
        doing = self.lock.state() if training == self.lock.ident else UNKNOWN
        seen = [(ident, self._number(frames[ident])) for ident in self.chosen(training, frames)]
        for ident, number in seen:
            state = self._state(ident)
            REC.emit(events.STACK, taken, taken, number, taken - self.previous.get(ident, self.started), state, ident)
            self.previous[ident] = taken
        if len(frames) > 1 and training in frames and training == REC.training_thread:
            self.lock.look(taken, training, frames, doing, self._number)

    def frames(self):
        """Thread ident -> innermost frame, of all threads but this one."""
        frames = sys._current_frames()
        # This function's own frame, which refers to ``frames``: all of them, and the user's local variables, would live
        # until the garbage collector finds that circle.
        frames.pop(threading.get_ident(), None)
        return frames

    def chosen(self, training, frames):
        """The threads to record: those that fetch or make in turn, so that each pause costs three samples at most."""
        found = [training] if training in frames else []
        fetchers = list(REC.fetchers)
        if fetchers:
            fetcher = fetchers[self.count % len(fetchers)]
            if fetcher in frames:
                found.append(fetcher)
            else:
                REC.fetchers.pop(fetcher, None)  # it has ended
        if REC.training_thread is not None and training in frames and _waits(frames[training]):
            # Threads of the user's at work while the training waits: one of them may make its input.
            makers = [
                ident
                for ident, frame in frames.items()
                if ident != training and ident not in REC.fetchers and _works(frame)
            ]
            if makers:
                found.append(makers[self.count % len(makers)])
        return found

    def look_at_files(self):
        """Note the open files now and then."""
        self.count += 1
        if self.count % FILES_EVERY == 0:
            self.files.look()
            if self.count % (FILES_EVERY * 10) == 0:
                self.files.write(REC.names)

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


def _works(frame):
    """True of a thread that runs the user's code and does not wait for others."""
    return not _waits(frame) and _is_of_user(frame)


def _is_of_user(frame):
    for _ in range(DEEPEST):
        if frame is None:
            return False
        if is_user_file(frame.f_code.co_filename):
            return not frame.f_code.co_filename.startswith(PROBE_FOLDER)
        frame = frame.f_back
    return False


def _frames(frame):
    """The innermost frames, and the first one of the user's own where it lies further out: it is the one to name."""
    found: Any = []
    own = False
    for code, line in _chain(frame):
        path = code.co_filename
        if not path.startswith(PROBE_FOLDER):
            own = own or is_user_file(path)
            if len(found) < MAX_FRAMES or (own and is_user_file(path)):
                found.append((code, line))
            if own and len(found) >= MAX_FRAMES:
                break
    return tuple(found)


def _chain(frame):
    """Code and line of each frame, innermost first.

    In one go, calling nothing that may let the thread run on: what a frame that has ended says of its caller is not
    always true in Python 3.11.
    """
    found: Any = []
    while type(frame) is FrameType and len(found) < DEEPEST:
        code = frame.f_code
        if code.co_name == _WORKER_ENTRY:
            break
        found.append((code, frame.f_lineno or 0))
        frame = frame.f_back
    return found
