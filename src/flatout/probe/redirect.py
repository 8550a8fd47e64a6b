"""Redirect a trial's writes to a scratch folder, if the kernel grants no private view of the disks.

Files that Python itself opens for writing, creates, renames or removes are redirected to the same path below the
scratch folder, and read back from there. C libraries that open files themselves are not reached, except by
torch.save.
"""

import builtins
import contextlib
import functools
import io
import os
import shutil
from typing import Any

from .unbound import Unbound

_REAL = ("/dev/", "/proc/", "/sys/")
_state: Any = {"scratch": None, "keep": (), "gone": set(), "busy": False}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def install(scratch, keep):
    """Patch Python's own file functions.

    Args:
        scratch: folder that takes the writes.
        keep: folders whose writes stay real: those of flatout.
    """
    _state.update(scratch=os.path.abspath(scratch), keep=tuple(os.path.join(os.path.abspath(k), "") for k in keep))
    builtins.open = io.open = _opening(io.open)
    os.open = _opening_low(os.open)
    for name in ("stat", "lstat", "access", "chmod", "utime", "listdir"):
        setattr(os, name, _reading(getattr(os, name)))
    for name in ("mkdir", "rmdir", "remove", "unlink"):
        setattr(os, name, _changing(getattr(os, name), removes=name != "mkdir"))
    for name in ("rename", "replace"):
        setattr(os, name, _moving(getattr(os, name)))


def torch_imported(torch):
    """torch.save writes in C++: it gets the path in the scratch folder."""
    if _state["scratch"] is None:
        return
    original = torch.save

    @functools.wraps(original)
    def save(obj, f, *args, **kwargs):
        return original(obj, writable(f) if _path(f) else f, *args, **kwargs)

    torch.save = save
    loaded = torch.load

    @functools.wraps(loaded)
    def load(f, *args, **kwargs):
        return loaded(readable(f) if _path(f) else f, *args, **kwargs)

    torch.load = load


def _path(target):
    return isinstance(target, (str, bytes, os.PathLike))


def _mapped(path):
    """The path below the scratch folder; None for paths that are not redirected."""
    text = os.path.abspath(os.fsdecode(path))
    inside = os.path.join(text, "")
    scratch = os.path.join(_state["scratch"], "")
    if inside.startswith(_REAL) or inside.startswith(scratch) or inside.startswith(_state["keep"]):
        return None
    return _state["scratch"] + text


def readable(path):
    """The path to read from: the scratch folder's version if it exists."""
    mapped = _mapped(path)
    return mapped if mapped is not None and os.path.lexists(mapped) else path


def writable(path, keep_content=False):
    """The path to write to; with ``keep_content``, a copy of the existing file."""
    mapped = _mapped(path)
    if mapped is None:
        return path
    parent = os.path.dirname(os.path.abspath(os.fsdecode(path)))
    if not _isdir(parent) and not _isdir(_state["scratch"] + parent):
        return path  # there is no such folder: the real call raises the error
    os.makedirs(os.path.dirname(mapped), exist_ok=True)
    if keep_content and not os.path.lexists(mapped):
        with contextlib.suppress(OSError):
            shutil.copyfile(path, mapped)
    return mapped


def _isdir(path):
    return os.path.isdir(path)


def _outermost(function):
    """Decorate a patch: nested calls from flatout's own code reach the original function."""

    @functools.wraps(function)
    def wrapper(original, path, args, kwargs):
        if _state["busy"] or not _path(path):
            return original(path, *args, **kwargs)
        _state["busy"] = True
        try:
            path, call = function(original, path, args, kwargs)
        finally:
            _state["busy"] = False
        return call(path, *args, **kwargs)

    return wrapper


def _wrap(decide):
    def patch(original):
        @functools.wraps(original)
        def patched(path, *args, **kwargs):
            return decide(original, path, args, kwargs)

        return Unbound(patched)

    return patch


@_outermost
def _open(original, path, args, kwargs):
    mode = args[0] if args else kwargs.get("mode", "r")
    if any(letter in mode for letter in "wax+"):
        return writable(path, keep_content="w" not in mode and "x" not in mode), original
    return readable(path), original


@_outermost
def _open_low(original, path, args, kwargs):
    flags = args[0] if args else kwargs["flags"]
    if kwargs.get("dir_fd") is not None:
        return path, original
    if flags & _WRITING:
        return writable(path, keep_content=not flags & os.O_TRUNC), original
    return readable(path), original


@_outermost
def _read(original, path, args, kwargs):
    return (readable(path) if kwargs.get("dir_fd") is None else path), original


_opening, _opening_low, _reading = _wrap(_open), _wrap(_open_low), _wrap(_read)


def _changing(original, removes):
    @_outermost
    def change(original, path, args, kwargs):
        if kwargs.get("dir_fd") is not None:
            return path, original
        mapped = _mapped(path)
        if mapped is None:
            return path, original
        if removes and not os.path.lexists(mapped):
            if not os.path.lexists(path):
                return path, original  # raises as it should
            return path, lambda *_, **__: None  # the user's file: left in place
        if not removes and os.path.isdir(path):
            return path, original  # it exists already: the real call raises the error
        return writable(path), original

    return _wrap(change)(original)


def _moving(original):
    @functools.wraps(original)
    def move(source, target, **kwargs):
        if _state["busy"] or not _path(source) or kwargs:
            return original(source, target, **kwargs)
        _state["busy"] = True
        try:
            source, target = writable(source, keep_content=True), writable(target)
        finally:
            _state["busy"] = False
        return original(source, target)

    return Unbound(move)
