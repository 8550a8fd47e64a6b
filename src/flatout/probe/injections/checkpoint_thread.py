"""Checkpoints written in a thread while the training goes on, from copies of their tensors.

What the script does with a file that is still to be written, happens in the same order as without the thread: a
rename, as of an atomic write, comes after it in the thread, and anything else that looks at the file waits for it.
Other processes that it starts find the file written. A signal from outside that ends the process may cut it short.
"""

import atexit
import builtins
import collections
import copy
import functools
import io
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from typing import Any

import torch

from ..unbound import Unbound

# Functions of os that wait if their first argument is a file to be written, or the folder of one.
_WAITING = ("stat", "lstat", "open", "remove", "unlink", "link", "chmod", "utime", "truncate", "listdir", "scandir")
_RENAMING = ("rename", "replace")
# Functions of os before which all is written: other processes see files, or this one ends without its exit functions.
_LEAVING = ("_exit", "abort", "kill", "system", "execv", "execve", "posix_spawn", "posix_spawnp")
_SIGNALLING = ("raise_signal", "pthread_kill", "pidfd_send_signal", "alarm", "setitimer")  # the same of signal


class _Nowhere:
    """A file that keeps nothing."""

    @staticmethod
    def write(data):
        """Take the data."""
        return len(data)


class _Check(pickle.Pickler):
    """Pickles all but tensors, into nothing: what cannot be pickled raises while the training saves it."""

    def __init__(self):
        super().__init__(_Nowhere, torch.serialization.DEFAULT_PROTOCOL)

    def persistent_id(self, obj):
        """Tensors, storages among them, are left to ``torch.save``."""
        return "tensor" if isinstance(obj, (torch.Tensor, torch.UntypedStorage, torch.TypedStorage)) else None


class Beside:
    """The thread, and what it has to do.

    Args:
        save: ``torch.save``.
        injected: the settings, which are told when the first checkpoint is written so.
    """

    def __init__(self, save, injected):
        self._save, self._injected = save, injected
        self._tasks: Any = queue.Queue()
        self._paths: Any = set()  # that tasks write, absolute
        self._lock = threading.Lock()  # a path and its task come together
        self._failed: Any = []
        self._thread: Any = None
        self._pid = 0

        @functools.wraps(save)
        def beside(*args, **kwargs):
            return self._saved(*args, **kwargs)

        self.save = beside

    def _saved(self, obj, f, *args, **kwargs):
        if not self._injected.get("checkpoint_beside"):  # it was switched off
            return self._save(obj, f, *args, **kwargs)
        if not isinstance(f, (str, bytes)) and not hasattr(f, "__fspath__"):
            return self._save(obj, f, *args, **kwargs)  # an open file: its owner may close it right away
        if self._pid != os.getpid():
            self._start()
        self._injected.done("checkpoint_beside")
        self._tasks.join()  # one checkpoint at a time: each is a copy of the model
        if self._failed:
            raise self._failed.pop()
        path = _absolute(f)
        if not os.path.isdir(os.path.dirname(path)) or os.path.isdir(path):
            return self._save(obj, f, *args, **kwargs)  # it raises, as it always did
        if not args and "pickle_module" not in kwargs:  # another pickler may take what this one refuses
            _Check().dump(obj)
        copied = _copied(obj)
        if copied is None:
            return self._save(obj, f, *args, **kwargs)
        self._add(path, self._save, (copied, path, *args), kwargs)
        return None

    def finish(self):
        """Wait until all is written, in the process that writes."""
        if self._pid == os.getpid():
            self._tasks.join()

    def _start(self):
        """Start the thread in this process; one that was forked has none."""
        first = self._thread is None
        self._tasks, self._lock, self._pid = queue.Queue(), threading.Lock(), os.getpid()
        self._paths.clear()
        self._thread = threading.Thread(target=self._work, name="flatout-checkpoint", daemon=True)
        self._thread.start()
        if first:
            atexit.register(self._finish)
            self._watch_files()

    def _add(self, path, function, args, kwargs):
        with self._lock:
            self._paths.add(path)
            self._tasks.put((function, args, kwargs))

    def _work(self):
        while True:
            function, args, kwargs = self._tasks.get()
            try:
                function(*args, **kwargs)
            except Exception as error:  # raised in the training at its next save
                self._failed.append(error)
            finally:
                with self._lock:
                    if self._tasks.empty():
                        self._paths.clear()
                    self._tasks.task_done()

    def _finish(self):
        self.finish()
        if self._pid == os.getpid():
            for error in self._failed:
                sys.stderr.write("flatout: a checkpoint was not written: %s: %s\n" % (type(error).__name__, error))

    def _concerns(self, path):
        """Whether a file is still to be written; asked by other threads than the one that writes."""
        if not self._paths or self._pid != os.getpid() or threading.current_thread() is self._thread:
            return False
        return _absolute(path) in self._paths

    def _holds(self, folder):
        """The same of a file somewhere below a folder."""
        if not self._paths or self._pid != os.getpid() or threading.current_thread() is self._thread:
            return False
        within = os.path.join(_absolute(folder), "")
        return any(path.startswith(within) for path in list(self._paths))

    def _watch_files(self):
        for name in _WAITING:
            setattr(os, name, Unbound(self._waiting(getattr(os, name))))
        for name in _LEAVING:
            setattr(os, name, Unbound(self._leaving(getattr(os, name))))
        for name in _SIGNALLING:
            if hasattr(signal, name):
                setattr(signal, name, Unbound(self._leaving(getattr(signal, name))))
        setattr(subprocess.Popen, "__init__", self._leaving(subprocess.Popen.__init__))  # noqa: B010
        os.register_at_fork(before=self._written)
        for name in _RENAMING:
            setattr(os, name, Unbound(self._renaming(getattr(os, name))))
        builtins.open = io.open = Unbound(self._waiting(io.open))

    def _written(self):
        """Wait until all is written; the thread itself, and a forked process, need not."""
        if self._paths and self._pid == os.getpid() and threading.current_thread() is not self._thread:
            self._tasks.join()

    def _leaving(self, original):
        @functools.wraps(original)
        def after(*args, **kwargs):
            self._written()
            return original(*args, **kwargs)

        return after

    def _waiting(self, original):
        @functools.wraps(original)
        def after(*args, **kwargs):
            if self._paths and (not args or self._concerns(args[0]) or self._holds(args[0])):
                self._tasks.join()
            return original(*args, **kwargs)

        return after

    def _renaming(self, original):
        @functools.wraps(original)
        def rename(*args, **kwargs):
            if not self._paths or len(args) != 2 or kwargs:
                return original(*args, **kwargs)
            if not self._concerns(args[0]):
                if self._concerns(args[1]) or self._holds(args[0]):
                    self._tasks.join()
                return original(*args, **kwargs)
            self._add(_absolute(args[1]), original, args, {})
            return None

        return rename


def _absolute(path):
    """The path as text; empty for anything else, such as a descriptor."""
    try:
        return os.path.abspath(os.fsdecode(path))
    except (TypeError, ValueError):
        return ""


def _copied(value):
    """A copy that shares nothing with the training; None: there is none, or it would take memory of a device.

    It has the types of the original, and what shares memory in the host does so in the copy.
    """
    try:
        return _on_host(value) if _on_device(value) else copy.deepcopy(value)
    except Exception:  # tensors with a graph, objects that cannot be copied, or that hold themselves
        return None


def _on_device(value):
    if isinstance(value, torch.Tensor):
        return value.device.type != "cpu"
    if isinstance(value, torch.nn.Module):
        return any(part.device.type != "cpu" for part in (*value.parameters(), *value.buffers()))
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return any(map(_on_device, parts))


def _on_host(value):
    """The same with tensors copied to the host; None: it is more than plain containers of tensors and plain values."""
    if type(value) is torch.Tensor and not value.requires_grad:
        return value.to("cpu", copy=True)
    if isinstance(value, dict) and type(value) in (dict, collections.OrderedDict):
        made = {key: _on_host(part) for key, part in value.items()}
        if any(part is None and value[key] is not None for key, part in made.items()):
            return None
        copied = value.copy()  # an OrderedDict with attributes, such as a state dict
        copied.update(made)
        return copied
    if type(value) in (list, tuple):
        parts = [_on_host(part) for part in value]
        return None if any(one is None and part is not None for one, part in zip(parts, value)) else type(value)(parts)
    return value if isinstance(value, (int, float, complex, str, bytes, torch.dtype, torch.device)) else None
