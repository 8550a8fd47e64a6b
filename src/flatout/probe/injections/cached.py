"""Reads below one folder that are kept on a faster disk, up to a budget."""

import builtins
import functools
import io
import os
import time

from ..read_cache import ReadCache
from ..unbound import Unbound
from . import c_readers

SETTINGS = ("read_through",)
TOKEN = "FLATOUT_CACHE_RUN"  # names the training in all its processes


def install(injected, watch):
    """Patch the functions that open files."""
    real, separator, rest = injected.get("read_through").partition("=")
    folder, colon, budget = rest.rpartition(":")
    if not separator or not colon or not os.path.isdir(real) or not budget.isdigit():
        injected.refuse("read_through", "%r is not REAL=CACHE:BYTES" % injected.get("read_through"))
        return
    os.environ.setdefault(TOKEN, str(int(time.time())))
    try:
        cache = ReadCache(os.path.abspath(folder), int(budget), int(os.environ[TOKEN]))
    except OSError as error:
        injected.refuse("read_through", "%s: %s" % (folder, error))
        return
    inside = os.path.join(os.path.abspath(real), "")

    def mapped(path):
        """The copy of a file below the folder; as it is elsewhere."""
        if not isinstance(path, (str, bytes, os.PathLike)):
            return path
        text = os.path.abspath(os.fsdecode(path))
        if not text.startswith(inside):
            return path
        try:
            there = cache.open_path(text)
        except Exception:
            return path  # whatever is wrong with the cache, the training reads its file
        injected.done("read_through")
        return path if there == text else there

    def reading(original, writes):
        @functools.wraps(original)
        def patched(path, *args, **kwargs):
            if kwargs.get("dir_fd") is not None or kwargs.get("opener") is not None or writes(args, kwargs):
                return original(path, *args, **kwargs)
            there = mapped(path)
            if there is path:
                return original(path, *args, **kwargs)
            try:
                return original(there, *args, **kwargs)
            except FileNotFoundError:  # it made room for another one just now
                return original(path, *args, **kwargs)

        return Unbound(patched)

    opened = reading(io.open, lambda args, kwargs: set(args[0] if args else kwargs.get("mode", "r")) & set("wax+"))
    builtins.open = io.open = opened
    os.open = reading(
        os.open,
        lambda args, kwargs: (args[0] if args else kwargs["flags"]) & (os.O_WRONLY | os.O_RDWR | os.O_DIRECTORY),
    )
    c_readers.install(mapped, watch, endings=False)
