"""Reads below one folder that are cached on a faster disk, up to a budget."""

import builtins
import functools
import io
import os

from ..contract import CACHE_RUN_VARIABLE
from ..file_cache.read_cache import ReadCache
from ..unbound import Unbound
from . import c_readers

_CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def install(injected, watch):
    """Patch the functions that open files, and those that change them: a program must read back its own writes."""
    real, separator, rest = injected.get("read_through").partition("=")
    folder, colon, budget = rest.rpartition(":")
    if not separator or not colon or not os.path.isdir(real) or not budget.isdigit():
        injected.refuse("read_through", "%r is not REAL=CACHE:BYTES" % injected.get("read_through"))
        return
    try:
        token = os.environ.get(CACHE_RUN_VARIABLE)
        cache = ReadCache(os.path.abspath(folder), int(budget), int(token) if token else None)
        if not token:  # the first process of a command that flatout cache did not start
            cache.begin()
            os.environ[CACHE_RUN_VARIABLE] = str(cache.token)
    except (OSError, ValueError) as error:
        injected.refuse("read_through", "%s: %s" % (folder, error))
        return
    inside = os.path.join(os.path.abspath(real), "")

    def below(path):
        """The absolute path of a file below the folder; None elsewhere."""
        if not isinstance(path, (str, bytes, os.PathLike)):
            return None
        text = os.path.abspath(os.fsdecode(path))
        return text if text.startswith(inside) else None

    def mapped(path):
        """The copy of a file below the folder; other paths are unchanged."""
        try:
            text = below(path)
            if text is None:
                return path
            there = cache.open_path(text)
        except Exception:
            return path  # whatever fails in the cache, the training still reads its file
        injected.done("read_through")
        return path if there == text else there

    def changed(path):
        try:
            text = below(path)
            if text is not None:
                cache.written(text)
        except Exception:
            pass

    def reading(original, writes, passes=lambda args, kwargs: False):
        @functools.wraps(original)
        def patched(path, *args, **kwargs):
            if kwargs.get("dir_fd") is not None or kwargs.get("opener") is not None or passes(args, kwargs):
                return original(path, *args, **kwargs)
            if writes(args, kwargs):
                changed(path)
                return original(path, *args, **kwargs)
            there = mapped(path)
            if there is path:
                return original(path, *args, **kwargs)
            try:
                return original(there, *args, **kwargs)
            except FileNotFoundError:  # it has just been evicted
                return original(path, *args, **kwargs)

        return Unbound(patched)

    def changing(original, paths):
        @functools.wraps(original)
        def patched(*args, **kwargs):
            try:
                return original(*args, **kwargs)
            finally:
                for path in args[:paths]:
                    changed(path)

        return Unbound(patched)

    opened = reading(io.open, lambda args, kwargs: set(args[0] if args else kwargs.get("mode", "r")) & set("wax+"))
    builtins.open = io.open = opened
    os.open = reading(
        os.open,
        lambda args, kwargs: (args[0] if args else kwargs["flags"]) & _CHANGES,
        lambda args, kwargs: (args[0] if args else kwargs["flags"]) & os.O_DIRECTORY,
    )
    for name, paths in (("rename", 2), ("replace", 2), ("remove", 1), ("unlink", 1), ("truncate", 1)):
        setattr(os, name, changing(getattr(os, name), paths))
    c_readers.install(mapped, watch, endings=False, changed=changed)
