"""What tells a call of a function from all others: the function, its object and its arguments, the same in each run."""

import hashlib
import os
import sys
from typing import Any

from ..sample_memory import KEY_BYTES

_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_LONGEST = 1 << 24  # bytes of an argument: beyond it, reading the argument takes as long as the call
_MOST = 1024  # parts of a list
_DEEPEST = 3
_PATH_CHARACTERS = 512
_MOST_OBJECTS = 64
_told_objects: Any = {}  # id of an object -> the object, what tells the parts that do not change


class _Untold(Exception):
    """An argument that cannot be told from others."""


def told_by(function, text):
    """What tells a function: its name and its code."""
    code = function.__code__
    return b"%s %s" % (text.encode(), hashlib.blake2b(code.co_code, digest_size=8).hexdigest().encode())


def key_of(told, args, kwargs):
    """The key of a call; None: an argument cannot be told from others."""
    found = hashlib.blake2b(told, digest_size=KEY_BYTES)
    try:
        for place, value in enumerate(args):
            if place == 0 and _is_object(value):
                _tell_object(found, value)
            elif type(value) is list:  # of a batch, as a rule: it comes in another order in the next pass
                return None
            else:
                _tell(found, value)
        for name in sorted(kwargs):
            found.update(name.encode())
            _tell(found, kwargs[name])
    except Exception:  # what it cannot tell, or attributes that run code of their own
        return None
    return found.digest()


def told_of(value):
    """What tells an object by what it held at its first call; empty: it is none whose methods are called."""
    if not _is_object(value):
        return b""
    known = _told_objects.get(id(value))
    if known is None or known[0] is not value:
        if len(_told_objects) >= _MOST_OBJECTS:
            _told_objects.clear()
        known = _told_objects[id(value)] = (value, _lasting(value))
    return known[1]


def _tell(found, value, depth=0):
    kind = type(value)
    if kind in _PLAIN:
        found.update(("%s %r;" % (kind.__name__, value)).encode("utf-8", "surrogatepass"))
        if kind is str and len(value) < _PATH_CHARACTERS and ("/" in value or "." in value):
            _tell_file(found, value)
    elif kind in (tuple, list) and depth < _DEEPEST and len(value) <= _MOST:
        found.update(b"(" if kind is tuple else b"[")
        for one in value:
            _tell(found, one, depth + 1)
        found.update(b")")
    elif isinstance(value, os.PathLike):
        found.update(("path %r;" % os.fspath(value)).encode("utf-8", "surrogatepass"))
        _tell_file(found, value)
    elif (data := _bytes_of(value)) is not None:
        found.update(data)
    else:
        raise _Untold


def _tell_file(found, path):
    """Size and time of a file, which may be written anew."""
    try:
        state = os.stat(path)
    except (OSError, ValueError):
        return
    found.update(b"%d %d %d;" % (state.st_size, state.st_mtime_ns, state.st_ino))


def _bytes_of(value):
    """An array, a tensor or a picture as bytes that tell it; None: it is none, or too large."""
    numpy, torch, image = (sys.modules.get(name) for name in ("numpy", "torch", "PIL.Image"))
    if torch is not None and type(value) is torch.Tensor and value.device.type == "cpu":
        if value.requires_grad or value.layout is not torch.strided:
            return None
        value = value.numpy()
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
    return type(value) not in _PLAIN and hasattr(value, "__dict__") and _bytes_of(value) is None


def _tell_object(found, value):
    """The object whose method is called: what its plain attributes hold now, and its others held at the first call."""
    found.update(told_of(value))
    for name, one in vars(value).items():
        if type(one) in _PLAIN:
            found.update(("%s %r;" % (name, one)).encode("utf-8", "surrogatepass"))


def _lasting(value):
    """What tells the attributes of an object that are not plain; values that cannot be told count by their type."""
    made = hashlib.blake2b(type(value).__qualname__.encode(), digest_size=KEY_BYTES)
    for name, one in sorted(vars(value).items()):
        if type(one) not in _PLAIN:
            made.update(name.encode())
            _tell_part(made, one)
    return made.digest()


def _tell_part(made, one: Any, depth=0):
    numpy = sys.modules.get("numpy")
    if type(one) in (tuple, list) and depth < _DEEPEST:
        made.update(b"%d;" % len(one))
        step = max(len(one) // _MOST, 1)
        for part in one[::step]:
            _tell_part(made, part, depth + 1)
    elif type(one) is dict and depth < _DEEPEST:
        made.update(b"%d;" % len(one))
        for number, (name, part) in enumerate(one.items()):
            if number == _MOST:
                break
            _tell_part(made, name, depth + 1)
            _tell_part(made, part, depth + 1)
    elif type(one) in _PLAIN:
        made.update(("%r;" % (one,)).encode("utf-8", "surrogatepass"))
    elif isinstance(one, os.PathLike):
        made.update(os.fspath(one).encode("utf-8", "surrogatepass"))
    elif numpy is not None and type(one) is numpy.ndarray and not (array := _untyped(one)).dtype.hasobject:
        made.update(("%s %r;" % (array.dtype.str, array.shape)).encode())
        flat = array.reshape(-1)
        made.update(flat[:: max(flat.size // (1 << 16), 1)].tobytes())
    else:
        made.update(type(one).__qualname__.encode())
        if (data := _bytes_of(one)) is not None:
            made.update(data)
        elif depth < _DEEPEST and hasattr(one, "__dict__") and not callable(one):
            _tell_part(made, sorted(vars(one).items(), key=lambda item: item[0]), depth + 1)


def _untyped(value) -> Any:
    """The value: type checkers take one that is no tuple or list for a dict."""
    return value
