"""Files that a call opens and folders that it lists, kept with its result: once one has changed, it is not used.

Only those are seen that Python opens and lists, and of libraries in C those that ``native_opens`` knows.
"""

import contextlib
import os
import pickle
import struct
import sys
import threading

from .call_keys import file_state

_HEAD = struct.Struct("<I")
_MOST = 8  # files and folders of a call


class ReadFiles:
    """The files of calls that run, by thread."""

    def __init__(self):
        self._local = threading.local()
        sys.addaudithook(_noting(self._local))

    @contextlib.contextmanager
    def watched(self):
        """Note the files that are opened inside, in this thread."""
        call = _Call()
        calls = self._local.__dict__.setdefault("calls", [])
        calls.append(call)
        try:
            yield call
        finally:
            calls.remove(call)

    @staticmethod
    def unchanged(stored):
        """True if the files of a stored result are what they were."""
        (length,) = _HEAD.unpack_from(stored)
        files = pickle.loads(stored[_HEAD.size : _HEAD.size + length]) if length else ()
        return all(file_state(path) == state for path, state in files)

    @staticmethod
    def same(stored, made):
        """True if two results are the same, and the later one was made of no other files.

        A first call opens those that its later ones find in memory.
        """
        (length,), (later,) = _HEAD.unpack_from(stored), _HEAD.unpack_from(made)
        files = made[_HEAD.size : _HEAD.size + later]
        known = stored[_HEAD.size : _HEAD.size + length]
        if bytes(known) != files and not set(_read(files)) <= set(_read(known)):
            return False
        return bytes(ReadFiles.without(stored)) == bytes(ReadFiles.without(made))

    @staticmethod
    def without(stored):
        """The stored result itself."""
        (length,) = _HEAD.unpack_from(stored)
        return stored[_HEAD.size + length :]


def _read(head):
    return pickle.loads(head) if head else ()


class _Call:
    def __init__(self):
        self.paths = set()

    def before(self, packed):
        """The result with its files before it; None: they are too many."""
        if len(self.paths) > _MOST:
            return None
        files = [(path, file_state(path)) for path in sorted(self.paths)]
        head = pickle.dumps(files, 5) if files else b""
        return _HEAD.pack(len(head)) + head + packed


def _noting(
    local, abspath=os.path.abspath, fsdecode=os.fsdecode, access=os.O_ACCMODE, reading=os.O_RDONLY, code=(".pyc", ".so")
):
    """A hook for files that are opened to be read and folders that are listed. It uses no globals: they end before."""

    def opened(event, args):
        if event not in ("open", "os.listdir", "os.scandir"):
            return
        try:  # what a hook raises ends the operation
            calls = local.__dict__.get("calls")
            if calls and not isinstance(args[0], int) and (event != "open" or args[2] & access == reading):
                path = abspath(fsdecode("." if args[0] is None else args[0]))
                if path.endswith(code) or "/site-packages/" in path or "/dist-packages/" in path:
                    return  # of what a first call imports
                for call in calls:
                    call.paths.add(path)
        except Exception:
            return

    return opened
