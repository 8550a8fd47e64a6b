"""Cache keys of calls: digests of function, object and arguments, the same in each process and each run."""

import hashlib
import os
import pickle
import sys
import types
from typing import Any

from ..sample_memory import KEY_BYTES

_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_LONGEST = 1 << 24  # bytes of an argument: beyond it, reading the argument takes as long as the call
_MOST = 1024  # parts of a list
_SAMPLED = 1 << 16  # elements of an object's array
_DEEPEST = 3
_PATH_CHARACTERS = 512
_MOST_OBJECTS = 64
# Of a process, and the same in each: they hold no data.
_WITHOUT_DATA = ("lock", "RLock", "Condition", "Event", "Semaphore", "local", "_local", "Logger")
_object_digests: Any = {}  # id of an object -> the object, the ids of its attributes, its digest


class _Unkeyable(Exception):
    """A value without a digest."""


def key_of(function, args, kwargs):
    """The key of a call.

    Args:
        function: its digest, by ``function_digest``.
        args: by position; the first may be the object whose method is called.
        kwargs: by name.

    Returns:
        16 bytes; None: the function, an argument or the object has no digest.
    """
    if function is None:
        return None
    found = hashlib.blake2b(function, digest_size=KEY_BYTES)
    try:
        for place, value in enumerate(args):
            if place == 0 and _is_object(value):
                _add_object(found, value)
            elif type(value) is list:  # of a batch, as a rule: it comes in another order in the next pass
                return None
            else:
                _add(found, value)
        for name in sorted(kwargs):
            found.update(name.encode())
            _add(found, kwargs[name])
    except Exception:  # no digest, or attributes that run code of their own
        return None
    return found.digest()


def function_digest(function, text=""):
    """The digest of a function: its name, code, defaults, and what it closes over; None: one of these has none."""
    made = hashlib.blake2b(text.encode(), digest_size=KEY_BYTES)
    try:
        _add_function(made, function)
    except Exception:
        return None
    return made.digest()


def object_digest(value):
    """The digest of an object's attributes but for the plain ones; empty: it is none whose methods are called.

    Made anew once another object is assigned to an attribute. Changes in place do not show.
    """
    if not _is_object(value):
        return b""
    ids = tuple(map(id, vars(value).values()))
    known = _object_digests.get(id(value))
    if known is None or known[0] is not value or not _alike(vars(value).values(), known[1], ids):
        if len(_object_digests) >= _MOST_OBJECTS:
            _object_digests.clear()
        known = _object_digests[id(value)] = (value, ids, _digest_of(value))
    return known[2]


def _alike(values, before, ids):
    """True if no attribute but a plain one is another object."""
    if before == ids:
        return True
    if len(before) != len(ids):
        return False
    return all(one == other or type(value) in _PLAIN for value, one, other in zip(values, before, ids))


def _add(found, value, depth=0):
    kind = type(value)
    if kind in _PLAIN:
        found.update(("%s %r;" % (kind.__name__, value)).encode("utf-8", "surrogatepass"))
        if kind is str and len(value) < _PATH_CHARACTERS and ("/" in value or "." in value):
            _add_file(found, value)
    elif kind in (tuple, list) and depth < _DEEPEST and len(value) <= _MOST:
        found.update(b"(" if kind is tuple else b"[")
        for one in value:
            _add(found, one, depth + 1)
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
    try:
        state = os.stat(path)
    except (OSError, ValueError):
        return
    found.update(b"%d %d %d;" % (state.st_size, state.st_mtime_ns, state.st_ino))


def _bytes_of(value):
    """The bytes of an array, a tensor or a picture, with its form; None: it is none, or too large."""
    value, image = _array_of(value), sys.modules.get("PIL.Image")
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


def _array_of(value) -> Any:
    """A tensor on the CPU as an array; any other value as it is."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return value
    if value.device.type != "cpu" or value.requires_grad or value.layout is not torch.strided:
        raise _Unkeyable
    return value.numpy()


def _is_object(value):
    if type(value) in _PLAIN or not hasattr(value, "__dict__"):
        return False
    data = (("torch", "Tensor"), ("numpy", "ndarray"), ("PIL.Image", "Image"))
    return not any(name in sys.modules and isinstance(value, getattr(sys.modules[name], kind)) for name, kind in data)


def _add_object(found, value):
    """The object whose method is called: what its plain attributes hold now, and the digest of the others."""
    found.update(object_digest(value))
    for name, one in vars(value).items():
        if type(one) in _PLAIN:
            found.update(("%s %r;" % (name, one)).encode("utf-8", "surrogatepass"))


def _digest_of(value):
    made = hashlib.blake2b(type(value).__qualname__.encode(), digest_size=KEY_BYTES)
    for name, one in sorted(vars(value).items()):
        if type(one) not in _PLAIN:
            made.update(name.encode())
            _add_part(made, one, parents=(value,))
    return made.digest()


def _add_part(made, one: Any, depth=0, parents=()):
    """A part of an object or of a function. Of long lists and large arrays, some elements."""
    one = _array_of(one)
    numpy = sys.modules.get("numpy")
    if type(one) in _PLAIN:
        made.update(("%r;" % (one,)).encode("utf-8", "surrogatepass"))
    elif any(one is parent for parent in parents):
        made.update(b"itself;")
    elif isinstance(one, os.PathLike):
        made.update(os.fspath(one).encode("utf-8", "surrogatepass"))
    elif numpy is not None and isinstance(one, numpy.ndarray) and not one.dtype.hasobject:
        made.update(("%s %r;" % (one.dtype.str, one.shape)).encode())
        flat = one.reshape(-1)
        made.update(flat[:: max(flat.size // _SAMPLED, 1)].tobytes())
    elif isinstance(one, (tuple, list)) and depth < _DEEPEST:
        made.update(b"%d;" % len(one))
        for part in one[:: max(len(one) // _MOST, 1)]:
            _add_part(made, part, depth + 1, (*parents, one))
    elif isinstance(one, dict) and depth < _DEEPEST:
        made.update(b"%d;" % len(one))
        for number, item in enumerate(one.items()):
            if number == _MOST:
                break
            _add_part(made, item, depth + 1, (*parents, one))
    elif isinstance(one, types.FunctionType):
        _add_function(made, one, (*parents, one))
    elif type(one).__name__ in _WITHOUT_DATA:
        made.update(type(one).__name__.encode())
    elif depth < _DEEPEST and _has_plain_state(one):
        made.update(type(one).__qualname__.encode())
        for item in sorted(vars(one).items()):
            _add_part(made, item, depth + 1, (*parents, one))
    else:
        made.update(pickle.dumps(one, 5))  # what cannot be pickled has no digest


def _has_plain_state(one):
    """True for an object whose attributes are all that there is of it; one that says how to pickle itself is more."""
    if not hasattr(one, "__dict__") or isinstance(one, (type, types.ModuleType)):
        return False
    own = [name for kind in type(one).__mro__[:-1] for name in vars(kind)]
    return not {"__getstate__", "__reduce__", "__reduce_ex__"} & set(own)


def _add_function(made, function, parents=()):
    code = function.__code__
    made.update(code.co_code)
    for one in code.co_consts:
        if type(one) in _PLAIN:
            _add_part(made, one)
    for one in (function.__defaults__, function.__kwdefaults__):
        _add_part(made, one, parents=parents)
    for cell in function.__closure__ or ():
        _add_part(made, cell.cell_contents, parents=(*parents, function))
