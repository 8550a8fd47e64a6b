"""Reads below one folder that go to a copy of it, such as one that ``flatout stage`` made on a local disk.

This reaches Python's own file functions, libraries built on them (Pillow, NumPy, torchvision's folders), and the
libraries in ``c_readers``, but no others that open files themselves in C.
"""

import builtins
import functools
import io
import os

from ..unbound import Unbound
from . import c_readers


def install(injected, watch):
    """Patch the functions that open, list and stat files."""
    real, separator, copy = injected.get("read_from").partition("=")
    if not separator or not os.path.isdir(copy):
        injected.refuse("read_from", "%r is not REAL=COPY with a folder COPY" % injected.get("read_from"))
        return
    real, copy = os.path.abspath(real), os.path.abspath(copy)
    inside = os.path.join(real, "")

    def mapped(path):
        """The path in the copy; unchanged outside of the folder, or if the copy lacks it."""
        if not isinstance(path, (str, bytes, os.PathLike)):
            return path
        text = os.path.abspath(os.fsdecode(path))
        if text != real and not text.startswith(inside):
            return path
        there = copy + text[len(real) :]
        if not exists(there):
            return path
        injected.done("read_from")
        return os.fsencode(there) if isinstance(os.fspath(path), bytes) else there

    def reading(original, writes=lambda args, kwargs: False):
        @functools.wraps(original)
        def patched(path=".", *args, **kwargs):
            if kwargs.get("dir_fd") is not None or writes(args, kwargs):
                return original(path, *args, **kwargs)
            return original(mapped(path), *args, **kwargs)

        return Unbound(patched)

    exists = functools.partial(_exists, os.stat)
    opened = reading(io.open, lambda args, kwargs: set(args[0] if args else kwargs.get("mode", "r")) & set("wax+"))
    builtins.open = io.open = opened
    os.open = reading(os.open, lambda args, kwargs: (args[0] if args else kwargs["flags"]) & (os.O_WRONLY | os.O_RDWR))
    for name in ("stat", "lstat", "listdir", "scandir", "access"):
        setattr(os, name, reading(getattr(os, name)))
    c_readers.install(mapped, watch, endings=True)


def _exists(stat, path):
    try:
        stat(path)
    except OSError:
        return False
    return True
