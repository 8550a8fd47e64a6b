"""Numbers for the values of tensors: what an operator makes of the same inputs again has the same number.

As compilers find common expressions. A chain that is computed again is so found as a whole, though each of its tensors
is a new one. What draws random numbers makes a new value each time, and so does whatever comes from elsewhere.
"""

import weakref
import zlib
from typing import Any

import torch

_AT_ONCE = 1 << 20  # words whose digest is computed, which takes 16 bytes for each
_MOST_COMPARED = 64 << 20  # bytes of tensors from step to step; what is beyond counts as changed


class ValueNumbers:
    """The values of one step, or of several."""

    def __init__(self, compared=False):
        """Know nothing yet.

        Args:
            compared: another step follows: tensors that no operator has made are known by their bytes, too.
        """
        self._results: Any = {}  # operator and numbers of its inputs -> number of its result
        self._values: Any = {}  # a tensor's memory, form and version -> number of its value
        self._in_storage: Any = {}  # memory -> what of it has a value
        self._held: Any = []  # tensors that no operator has made: nothing else may get their memory
        self._room = _MOST_COMPARED if compared else 0
        self._digests: Any = {}  # of such a tensor -> its number and its digest
        self._before: Any = {}  # the same of the step before
        self._count = 0

    def next_step(self):
        """Forget what operators have made, whose memory others get; what goes into them may be there again."""
        self._values, self._in_storage = {}, {}
        self._before, self._digests, self._room = self._digests, {}, 0

    def key(self, func, args, kwargs):
        """What an operator computes; None: something new each time."""
        if torch.Tag.nondeterministic_seeded in func.tags:
            return None
        key = func, self._told(args), self._told(tuple(sorted(kwargs.items())))
        try:
            hash(key)
        except TypeError:  # an argument of a kind that may change
            return None
        return key

    def made(self, key, args, result, view, changed=()):
        """Number what an operator has made; returns whether it is known from before.

        Args:
            key: of what it computes.
            args: its inputs.
            result: a tensor, or several.
            view: it shows an input in another form.
            changed: inputs that it has written to, whose versions torch counts on afterwards.
        """
        number = self._results.get(key) if key is not None else None
        again = number is not None
        if number is None:
            number = self._new()
            if key is not None:
                self._results[key] = number
        # What is detached lies where it lay, and keeps its number.
        same = {_where(tensor) for tensor in _tensors(args)} if view else ()
        for tensor in changed:
            self._forget(_where(tensor))  # also what shares the memory and not the version, as ``tensor.data`` does
        for place, tensor in enumerate(_tensors(result)):
            where = _where(tensor)
            if changed:
                self._note(_later(where), (number, place))
            if where not in same:
                self._note(where, (number, place))
        return again

    def _note(self, where, number):
        self._values[where] = number
        if isinstance(where, tuple):
            self._in_storage.setdefault(where[:2], set()).add(where)

    def _forget(self, where):
        if isinstance(where, tuple):
            for one in self._in_storage.pop(where[:2], ()):
                self._values.pop(one, None)
                self._digests.pop(one, None)
                self._before.pop(one, None)

    def _told(self, value):
        if isinstance(value, torch.Tensor):
            return self.number(value)
        if isinstance(value, (list, tuple)):
            return tuple(map(self._told, value))
        return type(value), value  # 1, 1.0 and True are other arguments

    def number(self, tensor):
        """What stands for the value of a tensor."""
        where = _where(tensor)
        if _is_borrowed(tensor):
            where = (*where[:-1], (where[-1], _checksum(tensor))) if isinstance(where, tuple) else object()
        number = self._values.get(where)
        if number is None:
            number = self._known_from_before(where, tensor) or self._new()
            self._note(where, number)
            self._held.append(tensor)
        return number

    def _known_from_before(self, where, tensor):
        """The number that a tensor had in the step before, if it still holds the same; else None."""
        if where in self._before:
            number, digest = self._before[where]
            return number if _digest(tensor) == digest else None
        plain = isinstance(where, tuple) and type(tensor) in (torch.Tensor, torch.nn.Parameter)
        size = tensor.numel() * tensor.element_size() if plain else 0
        if 0 < size <= self._room:
            self._room -= size
            number = self._new()
            self._digests[where] = number, _digest(tensor)
            return number
        return None

    def _new(self):
        self._count += 1
        return self._count


def is_view(func):
    """True for an operator that shows its input in another form."""
    schema = func._schema
    return not schema.is_mutable and any(one.alias_info is not None for one in schema.returns)


def holds_tensor(value):
    """True for a tensor, and for lists with one."""
    return bool(_flat(value))


def written(func, args, kwargs):
    """The inputs that an operator writes to."""
    if not func._schema.is_mutable:
        return []
    found: Any = []
    for place, one in enumerate(func._schema.arguments):
        if one.alias_info is not None and one.alias_info.is_write:
            found += _flat(args[place] if place < len(args) else kwargs.get(one.name))
    return found


def _where(tensor):
    """A tensor's memory, form and version: a tensor with the same has the same value."""
    try:
        storage = tensor.untyped_storage()
        offset, version = tensor.storage_offset(), tensor._version
        return storage._cdata, storage.data_ptr(), offset, tensor.shape, tensor.stride(), tensor.dtype, version
    except (
        NotImplementedError,
        RuntimeError,
    ):  # a sparse or nested tensor has no such memory, one of inference no version
        return _Object(tensor) if tensor.layout is not torch.strided and not tensor.is_inference() else object()


def _later(where):
    """The same with the next version."""
    return (*where[:-1], where[-1] + 1) if isinstance(where, tuple) else where


class _Object:
    """A tensor without memory of its own, as long as it lives: equal for the same object with the same version."""

    __slots__ = ("_id", "_tensor", "_version")

    def __init__(self, tensor):
        self._id, self._tensor, self._version = id(tensor), weakref.ref(tensor), tensor._version

    def __eq__(self, other):
        same = type(other) is _Object and (self._id, self._version) == (other._id, other._version)
        return same and self._tensor() is not None and self._tensor() is other._tensor()

    def __hash__(self):
        return self._id


def _is_borrowed(tensor):
    """True if the memory is another library's, such as numpy's, which writes to it without a new version."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return False
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return False
    storage: Any = tensor.untyped_storage()
    resizable = getattr(storage, "resizable", None)
    return resizable is not None and not resizable() and not storage.is_shared()


def _digest(tensor):
    """Of a tensor's bytes: the version does not count what is written through ``tensor.data``, or by other code."""
    if tensor.is_quantized:  # its bytes as another type end the process
        return object()  # nothing is like it
    try:
        values = tensor.detach().contiguous().view(-1).view(torch.uint8)
        rest = values[values.numel() // 4 * 4 :].tolist()
        words = values[: values.numel() // 4 * 4].view(torch.int32)
    except RuntimeError:  # no plain memory, such as a view that begins at an odd byte
        return object()  # nothing is like it
    places = torch.arange(1, min(words.numel(), _AT_ONCE) + 1, dtype=torch.int64, device=words.device)
    sums: Any = []
    for part in words.split(_AT_ONCE):
        sums += [part.sum(dtype=torch.int64), (part * places[: part.numel()]).sum()]
    return tuple(torch.stack(sums).tolist()), tuple(rest)


def _checksum(tensor):
    if tensor.dtype == torch.bfloat16 or tensor.requires_grad:
        return object()  # nothing is like it
    array = tensor.numpy()
    return zlib.crc32(memoryview(array).cast("B") if tensor.is_contiguous() else array.tobytes()) if array.size else 0


def _flat(value):
    """The tensors in a value, also those in lists."""
    if isinstance(value, (list, tuple)):
        return [tensor for one in value for tensor in _flat(one)]
    return [value] if isinstance(value, torch.Tensor) else []


def _tensors(result):
    if isinstance(result, torch.Tensor):
        return [result]
    return [one for one in result if isinstance(one, torch.Tensor)] if isinstance(result, (list, tuple)) else []
