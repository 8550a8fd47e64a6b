"""Functions of the user's that compute by several operators what torch has as one, in steps after the window.

Those that take one tensor, and call operators that activations and norms are made of, are asked what they give. Where
a function of torch's gives the same, both are timed.
"""

import copy
import math
import types
from collections import Counter
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .. import memory_room
from ..module_passes import same_random_numbers
from ..recorder import REC
from ..replacements import recognized_functions
from ..sites import is_user_file, user_frame
from . import both_ways
from .form_observer import FormObserver

_MARKS = {"tanh", "erf", "sigmoid", "softplus", "exp", "log", "log1p", "mean", "std", "var", "sqrt", "rsqrt", "pow"}
_MARKS |= {"clamp", "hardtanh"}
_MOST_KINDS = 6  # in the record
_MOST_ASKED = 24
_COPIES = 16  # of the input, that both forms may hold


class _Use(NamedTuple):
    """What a function was called with.

    Attributes:
        function: the function.
        owner: the module whose method it is, or None.
        others: arguments that are no tensors.
        like: shape, type, device and need of gradients of the tensor.
    """

    function: Any
    owner: Any
    others: Any
    like: Any

    def call(self, owner, x):
        """Call the function with another module of the same class, and another tensor."""
        given = (x, *self.others)
        return self.function(*given) if owner is None else self.function(owner, *given)


class UnfusedFunctions(FormObserver):
    """Finds them among the operators of a step."""

    record = "unfused_functions"

    def begin(self):
        self._marks: Any = Counter()  # code, and shape of the input -> operators
        self._uses: Any = {}  # the same -> the first call; None: it is no such function

    def look(self, name, *_):
        if name not in _MARKS or not torch.is_grad_enabled() or REC.process.get("autocast"):
            return
        frame: Any = user_frame()
        if frame is None:
            return
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount]
        if not 1 <= len(names) <= 4:
            return
        values = frame.f_locals
        given = recognized_functions.arguments(code, [values.get(one) for one in names])
        if given is None or not recognized_functions.is_plain(given[1]):
            return
        owner, tensor, others = given
        key = code, tuple(tensor.shape), others
        if key not in self._uses:
            function = _function(frame, owner)
            form = tuple(tensor.shape), tensor.dtype, tensor.device, tensor.requires_grad
            self._uses[key] = None if function is None else _Use(function, owner, others, form)
        self._marks[key] += 1

    def found(self):
        most = sorted(
            (key for key, use in self._uses.items() if use is not None),
            key=lambda key: -self._marks[key] * math.prod(key[1]),
        )
        found: Any = []
        for key in most[:_MOST_ASKED]:
            told = _told(self._uses[key], self._marks[key])
            if told is not None and len(found) < _MOST_KINDS:
                found.append(told)
        return found


def _function(frame, owner):
    """The function that a frame runs; None: it is not found, or what it does may be seen elsewhere."""
    code = frame.f_code
    if owner is None:
        places: Any = [frame.f_globals]
    else:
        places = [vars(kind) for kind in type(owner).__mro__[:-1]]
    for place in places:
        found = place.get(code.co_name)
        found = getattr(found, "__func__", found)
        if isinstance(found, types.FunctionType) and found.__code__ is code and is_user_file(code.co_filename):
            return None if recognized_functions.may_be_seen_elsewhere(found) else found
    return None


def _told(use, marks):
    """What the record says of a function; None: no function of torch's gives the same."""
    shape, dtype, device, gradients = use.like
    if memory_room.lacking() or _COPIES * 8 * math.prod(shape) > memory_room.for_copies():
        return None
    # No two rows are the same, and each has a deviation.
    x = torch.linspace(0.0, 1e4, math.prod(shape), dtype=dtype, device=device).sin_().view(shape)
    try:
        with same_random_numbers():
            owner = copy.deepcopy(use.owner)
            numbers = recognized_functions.numbers_of(use.function, owner)
            fused = recognized_functions.recognize(use.call, owner, x, numbers)
            if fused is None or not _gives_the_same(use, fused, owner, x):
                return None
            calls = max(round(marks / max(_marks_of(lambda: use.call(owner, x)), 1)), 1)
    except Exception:
        return None  # it takes other inputs than it was asked with
    parameters = [] if owner is None else list(torch.nn.Module.parameters(owner))
    sources = [one for one in (x.requires_grad_(gradients), *parameters) if one.requires_grad]
    if not sources:
        return None
    code = use.function.__code__
    place = [code.co_filename, code.co_firstlineno, use.function.__qualname__, calls]
    found: Any = {"calls": calls, "input": list(shape), "name": fused.name, "code": fused.code, "lines": [place]}
    try:
        times = both_ways.timed(lambda: use.call(owner, x), lambda: fused.compute(owner, x), sources)
        found.update(zip(("plain_ns", "joined_ns"), times))
    except Exception as error:
        found["skipped"] = "it raised %s: %s" % (type(error).__name__, str(error)[:200])
    return found


@torch.no_grad()
def _gives_the_same(use, fused, owner, x):
    """Whether that holds for an input of the whole size, too: what is computed of the batch does not show in a part."""
    return recognized_functions.same(fused.compute(owner, x), use.call(owner, x), recognized_functions.CLOSE)


@torch.no_grad()
def _marks_of(call):
    """How many of the operators that are counted a call runs."""
    with _Counting() as counting:
        call()
    return counting.marks


class _Counting(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self):
        super().__init__()
        self.marks = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.marks += func._overloadpacket.__name__ in _MARKS
        return func(*args, **(kwargs or {}))
