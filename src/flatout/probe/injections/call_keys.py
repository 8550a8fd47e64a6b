"""Cache keys of calls: digests of function, object, arguments and surroundings, the same in each process and run."""

import hashlib
import os
import sys
from typing import Any

import torch

from ..sample_memory import KEY_BYTES
from .object_state import PLAIN, Seen, add_function, array_of, attributes_of
from .reached_code import ReachedCode

_LONGEST = 1 << 24  # bytes of an argument: beyond it, reading the argument takes as long as the call
_MOST = 1024  # parts of a list
_DEEPEST = 3
_PATH_CHARACTERS = 512
_MOST_OBJECTS = 64
_CONTAINERS = (int, float, complex, str, bytes, list, tuple, dict, set, frozenset)


class _Unkeyable(Exception):
    """A value without a digest."""


class CallKeys:
    """The keys of one function's calls.

    Attributes:
        digest: of the function: its name, code, defaults, and what it closes over; None: one of these has none.
        unknown: why its calls have no keys, as text: what it reads is not known; empty: it is, so far.
    """

    def __init__(self, function, text=""):
        self._function = function
        self.unknown = ""
        made = hashlib.blake2b(text.encode(), digest_size=KEY_BYTES)
        try:
            add_function(made, function)
            self.digest: Any = made.digest()
        except Exception:
            self.digest = None
        self._reached: Any = {}  # class of the object whose method is called, or None -> what the code reaches
        self._around = Seen()
        self._objects: Any = {}  # id of an object -> the object, what was seen of its attributes

    def key(self, args, kwargs):
        """The key of a call.

        Args:
            args: by position; the first may be the object whose method is called.
            kwargs: by name.

        Returns:
            16 bytes; None: the function, an argument, the object or what the code reads has no digest. And the digest
            of the object's attributes as they are now; empty: it is none whose methods are called.
        """
        if self.digest is None:
            return None, b""
        found = hashlib.blake2b(self.digest, digest_size=KEY_BYTES)
        whose = b""
        try:
            for place, value in enumerate(args):
                if place == 0 and _is_object(value):
                    whose = self._whose(value)
                    found.update(whose)
                elif type(value) is list:  # of a batch, as a rule: it comes in another order in the next pass
                    return None, b""
                else:
                    add_value(found, value)
            for name in sorted(kwargs):
                found.update(name.encode())
                add_value(found, kwargs[name])
            self._add_surroundings(found, args)
        except Exception:  # no digest, or attributes that run code of their own
            return None, b""
        return found.digest(), whose

    def held(self):
        """The objects, of whatever kind, that the latest keys looked at: those of the call's object, and around it."""
        return [one for seen in (self._around, *(known[1] for known in self._objects.values())) for one in seen.held()]

    def note(self, *what):
        """The key of what all processes learn of this function from one; None: the function has no digest."""
        return self.digest and hashlib.blake2b(repr(what).encode(), key=self.digest, digest_size=KEY_BYTES).digest()

    def _whose(self, value):
        known = self._objects.get(id(value))
        if known is None or known[0] is not value:
            if len(self._objects) >= _MOST_OBJECTS:
                self._objects.clear()
            known = self._objects[id(value)] = (value, Seen())
        made = hashlib.blake2b(type(value).__qualname__.encode(), digest_size=KEY_BYTES)
        for name, one in sorted(attributes_of(value).items()):
            made.update(name.encode())
            made.update(b"itself;" if one is value else known[1].digest(name, one))
        return made.digest()

    def _add_surroundings(self, found, args):
        """Globals, class attributes and closures that the code reads, and functions of the user's that it calls."""
        kind = type(args[0]) if args and _is_object(args[0]) else None
        reached = self._reached.get(kind)
        if reached is None:
            code = ReachedCode(self._function, kind, attributes_of(args[0]).values() if kind is not None else args)
            reached = self._reached[kind] = (code, list(_class_attributes(kind, code.attributes)))
            self.unknown = self.unknown or code.unknown
        code, of_classes = reached
        if code.unknown:
            raise _Unkeyable
        found.update(str(torch.get_default_dtype()).encode())
        if code.environment:
            found.update(repr(sorted(os.environ.items())).encode("utf-8", "surrogatepass"))
        for namespace, name in code.values:
            found.update(name.encode())
            found.update(self._around.digest((id(namespace), name), namespace.get(name)))
        for place, cell in enumerate(code.cells):
            found.update(self._around.digest(place, cell.cell_contents))
        for base, name in of_classes:
            found.update(name.encode())
            found.update(self._around.digest((base, name), vars(base).get(name)))


def _class_attributes(kind, names):
    """Pairs of a class and one of these names, whose value is no method or property."""
    for base in kind.__mro__[:-1] if kind is not None else ():
        for name in sorted(names & vars(base).keys()):
            if not callable(vars(base)[name]) and not hasattr(vars(base)[name], "__get__"):
                yield base, name


def add_value(found, value, depth=0):
    """Add an argument to a digest: plain values, paths with the state of their files, arrays, pictures, and lists.

    Raises:
        Exception: it has no digest, or is too large for one.
    """
    kind = type(value)
    if kind in PLAIN:
        found.update(("%s %r;" % (kind.__name__, value)).encode("utf-8", "surrogatepass"))
        if kind is str and len(value) < _PATH_CHARACTERS and ("/" in value or "." in value):
            _add_file(found, value)
    elif kind in (tuple, list) and depth < _DEEPEST and len(value) <= _MOST:
        found.update(b"(" if kind is tuple else b"[")
        for one in value:
            add_value(found, one, depth + 1)
        found.update(b")")
    elif isinstance(value, os.PathLike):
        found.update(("path %r;" % os.fspath(value)).encode("utf-8", "surrogatepass"))
        _add_file(found, value)
    elif (data := _bytes_of(value)) is not None:
        found.update(data)
    else:
        raise _Unkeyable


def _add_file(found, path):
    """Size and time of a file, which may be written anew."""
    state = file_state(path)
    if state is not None:
        found.update(b"%d %d %d;" % state)


def file_state(path):
    """Size, time and number of a file; None: there is none."""
    try:
        state = os.stat(path)
    except (OSError, ValueError, TypeError):
        return None
    return state.st_size, state.st_mtime_ns, state.st_ino


def _bytes_of(value):
    """The bytes of an array, a tensor or a picture, with its form; None: it is none, or too large."""
    value, image = array_of(value), sys.modules.get("PIL.Image")
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        return ("%s %r;" % (value.dtype.str, value.item())).encode()
    if numpy is not None and type(value) is numpy.ndarray:
        if value.dtype.hasobject or value.nbytes > _LONGEST:
            return None
        head = ("%s %r %r;" % (value.dtype.str, value.shape, value.strides)).encode()
        return head + numpy.ascontiguousarray(value).tobytes()
    if image is not None and type(value) is image.Image and value.width * value.height * 4 <= _LONGEST:
        return ("%s %r;" % (value.mode, value.size)).encode() + value.tobytes()
    return None


def _is_object(value):
    if value is None or isinstance(value, _CONTAINERS) or not hasattr(value, "__dict__"):
        return False
    data = (("torch", "Tensor"), ("numpy", "ndarray"), ("PIL.Image", "Image"))
    return not any(name in sys.modules and isinstance(value, getattr(sys.modules[name], kind)) for name, kind in data)
