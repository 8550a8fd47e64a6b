"""Tables that are parsed once: of a file that was not changed, a later reading gets what an earlier one has parsed.

A worker keeps each table that it reads; the training process those that it reads twice. A pandas frame is given out as
a copy. An Arrow table cannot be changed: it is shared, and now and then it is looked whether an array made of it was
written to all the same.
"""

import contextlib
import functools
import os
import pickle
import stat
import sys
import threading
import time
import zlib
from collections import OrderedDict
from typing import Any

import torch.utils.data

from ..unbound import Unbound, unseen
from .rebinding import rebind

_READERS = {
    "pandas": ("read_csv", "read_table", "read_parquet", "read_feather", "read_excel", "read_orc"),
    "pyarrow.parquet": ("read_table",),
    "pyarrow.feather": ("read_table", "read_feather"),
    "pyarrow.csv": ("read_csv",),
}
_PLAIN = (bool, int, float, str, bytes, slice, type(None), type(Ellipsis))  # their ``repr`` tells values apart
_CHECKED, _AGAIN = 32, 64  # the first times that a shared table is given out, and later each so many times
_SETTLED_S = 2.0  # of a file that was just written, times may not tell a second write from the first
_MOST_SEEN = 100_000  # files that were read once


def install(injected, watch):
    """Patch the readers once their libraries are imported."""
    tables = _Tables(int(injected.get("table_cache_bytes")), injected)
    for module, names in _READERS.items():
        watch(module, functools.partial(_patch, tables, names))


def _patch(tables, names, module):
    for name in names:
        original = getattr(module, name, None)
        if original is not None:
            reading = _reading(tables, "%s.%s" % (module.__name__, name), original)
            rebind(module, name, original, Unbound(reading, module.__name__))


def _reading(tables, name, original):
    @unseen(original)
    def read(*args, **kwargs):
        key = _key(name, args, kwargs) if not tables.within() else None
        state: Any = _state(key[1]) if key is not None else None
        if key is None or state is None:
            return original(*args, **kwargs)
        kept = tables.find(key, state)
        if kept is not None:
            return kept
        with tables.reading():
            found = original(*args, **kwargs)
        settled = time.time() > max(state[1], state[2]) / 1e9 + _SETTLED_S
        if settled and _state(key[1]) == state:  # it was not written meanwhile
            tables.keep(key, state, found)
        return found

    return read


def _key(name, args, kwargs):
    """Reader, file and arguments; None: it is no file, or an argument may be anything."""
    path = args[0] if args else None
    if not isinstance(path, (str, os.PathLike)):
        return None
    try:
        return name, os.path.abspath(os.fspath(path)), _told((args[1:], kwargs, _options()))
    except (TypeError, ValueError, AttributeError):
        return None


def _state(path):
    """Size, times and number of a file; None: there is none, or it is a folder, which tells nothing of its files."""
    try:
        state = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(state.st_mode):
        return None
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino


def _options():
    """Those of pandas that change what is read."""
    pandas = sys.modules.get("pandas")
    if pandas is None:
        return ()
    every: Any = pandas.options.d
    return [(name, every.get(name, {})) for name in ("future", "io", "mode")]


def _told(value):
    """A text that tells a value from others.

    Raises:
        TypeError: of a value that none can tell, as a function.
    """
    if isinstance(value, (list, tuple)):
        return "%s(%s)" % (type(value).__name__, ",".join(map(_told, value)))
    if isinstance(value, dict):
        return "{%s}" % ",".join("%s:%s" % (_told(name), _told(one)) for name, one in value.items())
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, type) and value.__module__ in ("builtins", "numpy"):
        return "%s.%s" % (value.__module__, value.__qualname__)
    raise TypeError


class _Tables:
    """What was parsed, least recently used first."""

    def __init__(self, room, injected):
        self._room, self._injected = room, injected
        self._lock = threading.Lock()
        self._kept: Any = OrderedDict()  # key -> state of the file, _Frame or _Arrow
        self._seen: Any = set()  # keys that were read once
        self._bytes = 0
        self._local = threading.local()
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self):
        self._lock = threading.Lock()  # another thread may have held it

    def within(self):
        """True inside a reader that calls another one."""
        return getattr(self._local, "reading", False)

    @contextlib.contextmanager
    def reading(self):
        """A context in which a reader runs."""
        self._local.reading = True
        try:
            yield
        finally:
            self._local.reading = False

    def find(self, key, state):
        """What was parsed of the file in this state, to be given to the program; None: it has to be read."""
        with self._lock:
            before, kept = self._kept.get(key, (None, None))
            if before != state:
                self._drop(key)
                return None
            self._kept.move_to_end(key)
        found = kept.given_out()
        if found is None:
            with self._lock:
                self._drop(key)
            self._injected.refuse("table_cache_bytes", "the program writes to a table that cannot be written to")
        else:
            self._injected.done("table_cache_bytes")
        return found

    def keep(self, key, state, table):
        """Keep a table that has been read, if it may be needed again and there is room."""
        if self._injected.refused.get("table_cache_bytes"):
            return
        with self._lock:
            again = key in self._seen or torch.utils.data.get_worker_info() is not None
            if not again:
                if len(self._seen) < _MOST_SEEN:
                    self._seen.add(key)
                return
        kept = _kept(table, self._room)
        if kept is None:
            return
        with self._lock:
            self._drop(key)  # another thread may have read it too
            self._kept[key] = (state, kept)
            self._bytes += kept.size
            while self._bytes > self._room:
                self._drop(next(iter(self._kept)))

    def _drop(self, key):
        _, kept = self._kept.pop(key, (None, None))
        self._bytes -= kept.size if kept is not None else 0


class _Frame:
    """A pandas frame, given out as a copy with the same blocks.

    ``DataFrame.copy`` joins columns of one type in one block: what the program then gets as an array may be a view that
    cannot be written to, where a frame that was just read gives an array of its own.

    Attributes:
        size: in bytes.
    """

    def __init__(self, table, size):
        self.size = size
        self._arrays: Any = []
        self._rest = pickle.dumps(table, 5, buffer_callback=lambda array: self._arrays.append(bytes(array.raw())))

    def given_out(self):
        """A copy."""
        return pickle.loads(self._rest, buffers=[bytearray(array) for array in self._arrays])


class _Arrow:
    """An Arrow table, which cannot be changed.

    Attributes:
        size: in bytes.
    """

    def __init__(self, table):
        self._table, self.size = table, table.nbytes
        chunks = [chunk for column in table.columns for chunk in column.chunks]
        self._buffers = [one for chunk in chunks for one in chunk.buffers() if one is not None]
        self._given = 0
        self._mark = self._marked()

    def given_out(self):
        """The table itself; None: it was changed all the same."""
        self._given += 1
        if (self._given <= _CHECKED or self._given % _AGAIN == 0) and self._marked() != self._mark:
            return None
        return self._table

    def _marked(self):
        found = 0
        for buffer in self._buffers:
            found = zlib.crc32(buffer, found)
        return found


def _kept(table, room):
    """A table to be given out again; None: it is no plain table, or larger than the room."""
    pandas, pyarrow = sys.modules.get("pandas"), sys.modules.get("pyarrow")
    if pandas is not None and type(table) is pandas.DataFrame:
        if not all(_unchangeable(pandas, column) for _, column in table.items()):
            return None
        size = int(table.memory_usage(deep=True).sum())
        return _Frame(table, size) if size <= room else None
    if pyarrow is not None and type(table) is pyarrow.Table and table.nbytes <= room:
        return _Arrow(table)
    return None


def _unchangeable(pandas, column):
    """False for a column whose copy shares what the program may change: objects such as lists, Arrow's memory."""
    if type(column.dtype).__name__ == "ArrowDtype":
        return False
    return column.dtype != object or pandas.api.types.infer_dtype(column, skipna=True) in ("string", "empty")
