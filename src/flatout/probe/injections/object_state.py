"""Objects by what they hold: a digest of it, and in each call a cheap look whether it is still the same."""

import functools
import hashlib
import itertools
import os
import pickle
import sys
import types
import zlib
from typing import Any, NamedTuple

from ..sites import is_user_file

PLAIN = (int, float, complex, str, bytes, bool, type(None))
DIGEST_BYTES = 16
_MOST = 1024  # parts of a list
_SAMPLED = 1 << 16  # elements of an array
_GLANCED = 16  # elements of an array or a list that are looked at in each call
_WHOLE = 1 << 16  # bytes of an attribute or a global that are all looked at
_DEEPEST = 3
_DEEPEST_DIGEST = 6  # a pipeline of transforms is that deep in a data set
# Of a process, and the same in each: they hold no data.
_WITHOUT_DATA = ("lock", "RLock", "Condition", "Event", "Semaphore", "local", "_local", "Logger")


class Seen:
    """Digests of values by name, made anew where a look shows that a value has changed.

    A change by assignment shows, also in objects inside, and one of a tensor in place; of arrays and long lists, one in
    the elements looked at.
    """

    def __init__(self):
        self._known: Any = {}  # name -> the look, the digest, and what was looked at, so that no other gets its id

    def digest(self, name, value):
        """The digest of a value; raises for one that has none."""
        if type(value) in PLAIN:
            return repr(value).encode("utf-8", "surrogatepass")
        looked: Any = []
        held: Any = []
        look(value, looked, held)
        known = self._known.get(name)
        if known is None or known[0] != looked:
            made = hashlib.blake2b(digest_size=DIGEST_BYTES)
            add_part(made, value)
            known = self._known[name] = (looked, made.digest(), held)
        return known[1]

    def held(self):
        """The objects that were looked at."""
        return [one for _, _, held in self._known.values() for one in held]


def look(value, looked, held, depth=0):
    """Add to ``looked`` what shows that a value is as it was, and to ``held`` the objects that keep ids for it."""
    if type(value) in PLAIN:
        looked.append(value)
        return
    looked.append(id(value))
    held.append(value)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.nn.Module):
        looked.append([(id(one), one._version) for one in itertools.chain(value.parameters(), value.buffers())])
    if torch is not None and isinstance(value, torch.Tensor):
        looked.append(value._version)
        strided = value.device.type == "cpu" and value.layout is torch.strided and not value.is_conj()
        value = value.detach().numpy() if strided and value.dtype is not torch.bfloat16 else None
    if numpy is not None and isinstance(value, numpy.ndarray):
        _look_at_array(numpy, value, looked, held, depth)
    elif isinstance(value, (list, tuple, dict)):
        looked.append(len(value))
        step = max(len(value) // _GLANCED, 1)
        parts = itertools.islice(value.values(), _GLANCED) if isinstance(value, dict) else value[::step]
        for part in parts if depth < _DEEPEST else ():
            look(part, looked, held, depth + 1)
    elif depth < _DEEPEST and (_has_plain_state(value) or is_of_the_users(type(value))):
        for name, part in attributes_of(value).items():
            looked.append(name)
            look(part, looked, held, depth + 1)


def _look_at_array(numpy, value, looked, held, depth):
    step = max(value.size // _GLANCED, 1)
    some = numpy.ravel(value, "K")[::step] if value.flags.forc else numpy.array(value.flat[:_GLANCED])
    looked.append(value.shape)
    if not value.dtype.hasobject and depth == 0 and value.nbytes <= _WHOLE and value.flags.c_contiguous:
        looked.append(zlib.crc32(value))
    elif not value.dtype.hasobject:
        looked.append(some.tobytes())
    elif depth < _DEEPEST:
        for part in some:
            look(part, looked, held, depth + 1)


def add_part(made, one: Any, depth=0, parents=()):
    """Add a part of an object or of a function to a digest. Of long lists and large arrays, some elements."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(one, torch.Tensor) and one.numel() > _SAMPLED:
        made.update(b"version %d;" % one._version)  # a change in place may lie between the elements
    one = array_of(one)
    if type(one) in PLAIN:
        made.update(("%r;" % (one,)).encode("utf-8", "surrogatepass"))
    elif any(one is parent for parent in parents):
        made.update(b"itself;")
    elif isinstance(one, os.PathLike):
        made.update(os.fspath(one).encode("utf-8", "surrogatepass"))
    elif numpy is not None and isinstance(one, numpy.ndarray) and not one.dtype.hasobject:
        made.update(("%s %r;" % (one.dtype.str, one.shape)).encode())
        flat = one.reshape(-1)
        made.update(flat[:: max(flat.size // _SAMPLED, 1)].tobytes())
    elif isinstance(one, (tuple, list)) and depth < _DEEPEST_DIGEST:
        made.update(b"%d;" % len(one))
        for part in one[:: max(len(one) // _MOST, 1)]:
            add_part(made, part, depth + 1, (*parents, one))
    elif isinstance(one, dict) and depth < _DEEPEST_DIGEST:
        made.update(b"%d;" % len(one))
        for item in itertools.islice(one.items(), _MOST):
            add_part(made, item, depth + 1, (*parents, one))
    elif isinstance(one, types.FunctionType):
        add_function(made, one, (*parents, one))
    elif isinstance(one, functools.partial):
        add_part(made, (one.func, one.args, one.keywords), depth, (*parents, one))
    elif type(one).__name__ in _WITHOUT_DATA:
        made.update(type(one).__name__.encode())
    elif depth < _DEEPEST_DIGEST and _has_plain_state(one):
        made.update(type(one).__qualname__.encode())
        for name, part in sorted(attributes_of(one).items()):
            made.update(("%s;" % name).encode())
            add_part(made, part, depth + 1, (*parents, one))
    else:
        made.update(pickle.dumps(one, 5))  # what cannot be pickled has no digest


def add_function(made, function, parents=()):
    """Add a function: its code, defaults, and what it closes over."""
    code = function.__code__
    made.update(code.co_code)
    for one in code.co_consts:
        if type(one) in PLAIN:
            add_part(made, one)
    for one in (function.__defaults__, function.__kwdefaults__):
        add_part(made, one, parents=parents)
    for cell in function.__closure__ or ():
        add_part(made, cell.cell_contents, parents=(*parents, function))


def array_of(value) -> Any:
    """A tensor on the CPU as an array; any other value as it is.

    Raises:
        ValueError: it is a tensor whose bytes are not all that there is of it.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return value
    if value.device.type != "cpu" or value.requires_grad or value.layout is not torch.strided or value.is_conj():
        raise ValueError
    return value.numpy()


def attributes_of(one):
    """An object's attributes by name, those in slots included."""
    own = getattr(one, "__dict__", None)
    slots = _about(type(one)).slots
    if not slots:
        return own if own is not None else {}
    return {**(own or {}), **{name: getattr(one, name) for name in slots if hasattr(one, name)}}


def is_of_the_users(kind):
    """True for a class that is neither the standard library's nor an installed package's."""
    return _about(kind).users


def _has_plain_state(one):
    """True for an object whose attributes are all that there is of it; one that says how to pickle itself is more."""
    about = _about(type(one))
    return about.plain and (about.slotted or hasattr(one, "__dict__"))


class _Class(NamedTuple):
    """What there is to know of a class.

    Attributes:
        slots: names of the attributes in slots, as they are looked up.
        slotted: whether it has ``__slots__``, empty ones included.
        users: see ``is_of_the_users``.
        plain: whether it is neither a class of classes or modules nor says how to pickle its objects.
    """

    slots: "tuple[str, ...]"
    slotted: bool
    users: bool
    plain: bool


_ABOUT: "dict[type, _Class]" = {}


def _about(kind):
    found = _ABOUT.get(kind)
    if found is None:
        found = _ABOUT[kind] = _look_up(kind)
    return found


def _look_up(kind):
    own = [name for base in kind.__mro__[:-1] for name in vars(base)]
    slots = []
    for base in kind.__mro__:
        names = vars(base).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            private = name[:2] == "__" and name[-2:] != "__"
            slots.append("_%s%s" % (base.__name__.lstrip("_"), name) if private else name)
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return _Class(
        slots=tuple(name for name in slots if name not in ("__dict__", "__weakref__")),
        slotted="__slots__" in own,
        users=file is not None and is_user_file(file),
        plain=not issubclass(kind, (type, types.ModuleType))
        and not {"__getstate__", "__reduce__", "__reduce_ex__"} & set(own),
    )
