"""What a module that does not train makes of a sample, made once: from the second pass on it comes from memory.

A sample is known by the bytes that the module is given for it, so that random samples are computed each time. Samples
may have been computed in another batch, which can change the last bits: results are compared within a tolerance, for
the first calls and now and then later. A module whose weights change, that draws random numbers, has hooks or stores
something on itself is left alone.
"""

import hashlib
import itertools
import pickle
import threading
from typing import Any, NamedTuple

import torch

from .. import in_place, live_objects, memory_room
from ..module_passes import is_hooked, transformed
from ..recorder import report_fault
from ..sample_memory import KEY_BYTES, SampleMemory
from ..wrap import is_compiling
from .beginnings import at_beginnings
from .decoded import Kept, wanted_room
from .object_state import PLAIN
from .side_effects import Draws

SETTING = "features_once"
_CHECKED = 8  # calls that are computed as well, and compared, before stored results are relied on
_AGAIN = 64  # of later calls, each so many is computed as well
_MOST_STATES = 3  # of the weights: where they change, as those of a moving average do, nothing comes again
_MEMORY_SHARE = 0.25  # of what is available, where no room is given
_LOOKED_UP = 3  # times, until the module is found
# Of the largest value: that two results of one sample may differ by, for batches of other samples.
_TOLERANCE, _HALF_TOLERANCE = 1e-4, 3e-2
_HALVES = (torch.float16, torch.bfloat16)


class _Unkept(Exception):
    """A call that has no stored result; the text says why, for good; none: another one may have."""


def install(injected, watch):
    """Look the module up when a pass begins or a backward pass runs."""
    room = wanted_room(injected) or int(_MEMORY_SHARE * memory_room.available_bytes())
    try:
        kept = Kept(SampleMemory(int(room)), injected, SETTING)
    except (OSError, ValueError, AttributeError) as error:  # no memfd_create before Linux 3.17
        injected.refuse(SETTING, "%s bytes cannot be shared: %s" % (room, error))
        return
    at_beginnings(_Features(injected, kept).look_up, watch)


class _Features:
    """The modules of the setting's name."""

    def __init__(self, injected, kept):
        self._injected, self._kept = injected, kept
        self._kind, _, self._path = injected.get(SETTING).partition(".")
        self._looked_up = 0
        self._modules: Any = {}  # id -> _Module

    def look_up(self):
        """Find the modules, if they are not found yet."""
        if self._modules or self._looked_up == _LOOKED_UP:
            return
        self._looked_up += 1
        try:
            for root in live_objects.outermost():
                if type(root).__name__ == self._kind:
                    self._found(root)
        except Exception:
            report_fault(SETTING)
        if not self._modules and self._looked_up == _LOOKED_UP:
            self._refuse("there is no such module")

    def _found(self, root):
        part = dict(root.named_modules()).get(self._path)
        if part is None or id(part) in self._modules:
            return
        self._modules[id(part)] = _Module(part, self._kept, self._refuse)
        function = in_place.innermost(type(part).forward)
        if in_place.is_instrumented(function):
            return
        try:
            in_place.instrument(function, self._called)
        except in_place.NotInstrumented as error:
            self._refuse(str(error))

    def _called(self, module, *args, **kwargs):
        """The result in a tuple; None: the body has to run."""
        found = self._modules.get(id(module))
        return None if found is None else found.called(args, kwargs)

    def _refuse(self, why):
        self._injected.refuse(SETTING, why)


class _Module:
    """One module, and what is stored of it."""

    def __init__(self, module, kept, refuse):
        self._module, self._kept, self._refuse = module, kept, refuse
        self._running = threading.local()  # .on: a call that is computed to be stored
        self._alone = False
        self._state: Any = None  # as in the latest call
        self._digest = b""  # of it
        self._states = 0
        self._form: Any = None  # of what it gives
        self._agreed = self._hits = 0

    def called(self, args, kwargs):
        if self._alone or getattr(self._running, "on", False) or is_compiling() or transformed():
            return None
        if torch.is_inference_mode_enabled():
            return None
        try:
            return self._answer(args, kwargs)
        except _Unkept as error:
            if str(error):
                self._leave_alone(str(error))
        except (RuntimeError, TypeError, ValueError, OSError):  # a kind of tensor or module with code of its own
            self._leave_alone("what it is given or gives cannot be kept")
        return None

    def _answer(self, args, kwargs):
        state = self._look()
        given = list(_tensors((args, kwargs)))
        if torch.is_grad_enabled() and any(one.requires_grad for one in (*given, *self._module.parameters())):
            return None
        keys = self._keys(state, args, kwargs, given)
        stored = [self._kept.find(key) for key in keys] if self._form is not None else [None]
        found = self._form.joined(stored) if all(row is not None for row in stored) else None
        if found is not None:
            self._hits += 1
            if self._hits % _AGAIN and self._agreed >= _CHECKED:
                self._kept.used()
                return (found,)
        draws = Draws()
        self._running.on = True
        try:
            made = self._module.forward(*args, **kwargs)
        finally:
            self._running.on = False
        try:
            if draws.finish() or draws.count:
                raise _Unkept("it draws random numbers")
            if self._look() != state:
                raise _Unkept("a call changes what it holds")
            self._keep(keys, given, found, made)
        except _Unkept as error:
            self._leave_alone(str(error))
        except Exception:
            report_fault(SETTING)
            self._leave_alone("what it gives cannot be kept")
        return (made,)  # it has run once

    def _keep(self, keys, given, found, made):
        """Store what it gave for each sample, or compare it with what is stored."""
        form = _Form(made, len(keys), given)
        if self._form is None or not self._form.like(form):
            self._form = form
        if found is None:
            for key, row in zip(keys, form.rows(made)):
                self._kept.keep(key, row)
        elif form.close(found, made):
            self._agreed += 1
            self._kept.used()
        else:
            raise _Unkept("it gave something else than before for the same samples")

    def _look(self):
        """What shows that it is as it was: weights, modes and plain attributes of all its layers."""
        held = itertools.chain(self._module.parameters(), self._module.buffers())
        parts = list(self._module.modules())
        if any(is_hooked(part) for part in parts):
            raise _Unkept("it has hooks, which run when it computes")
        found = [(id(one), one._version, one.data_ptr()) for one in held]
        found += [
            (name, value if type(value) in PLAIN else (id(value), _length(value)))
            for part in parts
            for name, value in vars(part).items()
        ]
        return found

    def _keys(self, state, args, kwargs, given):
        """The key of each sample: of the weights, and of what the module is given for it."""
        count = len(given[0]) if given and given[0].dim() else 0
        if not count or any(one.dim() == 0 or len(one) != count for one in given):
            raise _Unkept
        if state != self._state:
            self._states += 1
            if self._states > _MOST_STATES:
                raise _Unkept("its weights change")
            self._state, self._digest = state, _digest(self._module)
        around = [_casts(), *(str(one.dtype) for one in given), *_plain((args, kwargs))]
        rows = [_bytes(one) for one in given]
        keys = []
        for place in range(count):
            made = hashlib.blake2b(self._digest, digest_size=KEY_BYTES)
            for one, row in zip(given, rows):
                made.update(repr((around, tuple(one.shape[1:]))).encode())
                made.update(row[place])
            keys.append(made.digest())
        return keys

    def _leave_alone(self, why):
        self._alone = True
        self._refuse(why)


class _Form:
    """What a module gives: a tensor, or tensors in a list, a tuple or a dictionary, all with the samples in front."""

    def __init__(self, made, count, given):
        self._made = _without_values(made)
        tensors = list(_tensors(made))
        if not tensors or any(not one.dim() or len(one) != count for one in tensors):
            raise _Unkept("it gives something else than tensors with a row for each sample")
        if any(one.requires_grad or one.layout is not torch.strided for one in tensors):
            raise _Unkept("what it gives has gradients")
        inside = {(one.data_ptr(), one.numel()) for one in given}
        if any((one.data_ptr(), one.numel()) in inside for one in tensors):
            raise _Unkept("it gives what it was given")
        self._kinds = [(one.dtype, one.device, _is_channels_last(one)) for one in tensors]

    def like(self, other):
        """True if another result has the same form, whatever the samples' shapes are."""
        return self._made == other._made and self._kinds == other._kinds

    def rows(self, made):
        """The bytes of each sample."""
        parts = [(tuple(one.shape[1:]), _bytes(one)) for one in _tensors(made)]
        for place in range(len(parts[0][1])):
            yield pickle.dumps([(shape, rows[place].tobytes()) for shape, rows in parts], 5)

    def joined(self, stored):
        """The result of these samples; None: their shapes differ."""
        rows = [pickle.loads(bytes(row)) for row in stored]
        tensors: Any = []
        for place, (dtype, device, channels_last) in enumerate(self._kinds):
            shapes = {row[place][0] for row in rows}
            if len(shapes) > 1:
                return None
            shape = (len(rows), *shapes.pop())
            made = torch.empty(shape, dtype=dtype)
            data = bytearray(b"".join(row[place][1] for row in rows))
            made.view(-1).view(torch.uint8).copy_(torch.frombuffer(data, dtype=torch.uint8)) if data else None
            made = made.to(device)
            tensors.append(made.contiguous(memory_format=torch.channels_last) if channels_last else made)
        return _with_values(self._made, iter(tensors))

    @staticmethod
    def close(one, other):
        """True if two results are the same within the tolerance."""
        half = _casts()
        for mine, theirs in zip(_tensors(one), _tensors(other)):
            if not mine.is_floating_point():
                if not torch.equal(mine, theirs):
                    return False
                continue
            tolerance = _HALF_TOLERANCE if half or mine.dtype in _HALVES else _TOLERANCE
            most = float(theirs.abs().nan_to_num(0.0, 0.0, 0.0).amax()) if theirs.numel() else 0.0
            if not torch.allclose(mine, theirs, rtol=0.0, atol=tolerance * most, equal_nan=True):
                return False
        return True


class _Value:
    """Stands for a tensor in a form."""

    def __eq__(self, other):
        return type(other) is _Value

    __hash__ = None  # type: ignore[assignment]


class _Mapping(NamedTuple):
    kind: Any
    parts: Any


def _without_values(made):
    if isinstance(made, torch.Tensor):
        if type(made) is not torch.Tensor:
            raise _Unkept("it gives a tensor of a class of its own")
        return _Value()
    if type(made) in (list, tuple):
        return type(made)(map(_without_values, made))
    if isinstance(made, dict) and (type(made) is dict or hasattr(made, "to_tuple")):  # outputs of transformers
        return _Mapping(type(made), {name: _without_values(one) for name, one in made.items()})
    if type(made) in PLAIN:
        return made
    raise _Unkept("it gives an object of class %s" % type(made).__name__)


def _with_values(form, tensors):
    if type(form) is _Value:
        return next(tensors)
    if type(form) is _Mapping:
        return form.kind(**{name: _with_values(one, tensors) for name, one in form.parts.items()})
    if type(form) in (list, tuple):
        return type(form)([_with_values(one, tensors) for one in form])
    return form


def _tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from (found for one in value.values() for found in _tensors(one))
    elif isinstance(value, (list, tuple)):
        yield from (found for one in value for found in _tensors(one))


def _plain(value):
    """All that is no tensor in arguments, comparable as text."""
    if isinstance(value, torch.Tensor):
        return
    if type(value) in PLAIN or isinstance(value, (torch.dtype, torch.device)):
        yield repr(value)
    elif type(value) is dict:
        for name, one in value.items():
            yield repr(name)
            yield from _plain(one)
    elif type(value) in (list, tuple):
        yield str(len(value))
        for one in value:
            yield from _plain(one)
    else:
        raise _Unkept


def _bytes(tensor):
    """The bytes of each row, as an array of two dimensions."""
    flat = tensor.detach().cpu().contiguous().reshape(len(tensor), -1)
    return flat.view(torch.uint8).numpy() if flat.shape[1] else [memoryview(b"")] * len(flat)


def _digest(module):
    """Of all that a module computes with."""
    made = hashlib.blake2b(digest_size=KEY_BYTES)
    for name, part in module.named_modules():
        plain = sorted((key, repr(value)) for key, value in vars(part).items() if type(value) in PLAIN)
        made.update(repr((name, type(part).__qualname__, plain)).encode())
    for name, one in itertools.chain(module.named_parameters(), module.named_buffers()):
        made.update(repr((name, one.dtype, tuple(one.shape))).encode())
        made.update(one.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return made.digest()


def _casts():
    """True under autocast, for whatever device."""
    enabled = getattr(torch._C, "_is_any_autocast_enabled", torch.is_autocast_enabled)
    return enabled()


def _length(value):
    return len(value) if isinstance(value, (list, dict, set)) else 0


def _is_channels_last(tensor):
    return tensor.dim() == 4 and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last)
