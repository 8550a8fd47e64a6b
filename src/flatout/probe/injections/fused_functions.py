"""Functions of the user's that compute by several operators what torch has as one: torch's are called in their place.

What a function gives is asked with random numbers first, for each module and each form of its arguments, with the
gradients; what it gives for the first call, and for one in a thousand later ones, is compared. One that differs is left
alone.
"""

import functools
import threading
import weakref
from typing import Any

import torch

from .. import in_place
from ..module_passes import same_random_numbers, transformed
from ..recorder import report_fault
from ..replacements import recognized_functions
from ..wrap import casts, is_compiling, is_traced
from .named_functions import NamedFunction, find

_SETTING = "fused_functions"
_LOOKED_UP = (1, 2, 5, 20)  # backward passes after which functions are looked up: some are made late
_MOST_FORMS = 32  # of the inputs of a function
_AGAIN = 1000  # of the calls, each so many is computed as well


def install(injected, watch):
    """Patch ``torch.autograd.backward``: functions are looked up after a pass, and are there by then."""
    functions = _FusedFunctions(injected)
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(*args, **kwargs):
        result = original(*args, **kwargs)
        functions.stepped()
        return result

    torch.autograd.backward = backward


class _FusedFunctions:
    """The functions of the setting."""

    def __init__(self, injected):
        self._injected = injected
        self._pending = [NamedFunction(text) for text in injected.get(_SETTING).split(",")]
        self._found: Any = set()  # functions, as the setting names them
        self._refused: Any = {}  # the same -> why
        self._steps = 0

    @property
    def on(self):
        """Whether they are to be replaced now."""
        return bool(self._injected.get(_SETTING))

    def stepped(self):
        """Count a backward pass, and look functions up after some of them."""
        self._steps += 1
        if self._steps in _LOOKED_UP:
            try:
                self._look_up()
            except Exception:
                report_fault(_SETTING)

    def _look_up(self):
        missing = [named for named in self._pending if named.text not in self._found]
        for named, function in list(find(missing)) if missing else ():
            self._found.add(named.text)
            if in_place.is_instrumented(function):
                continue
            why = recognized_functions.may_be_seen_elsewhere(function)
            try:
                if why is None:
                    in_place.instrument(function, _Fused(self, named, function))
            except in_place.NotInstrumented as error:
                why = str(error)
            if why is not None:
                self.refuse(named, why)
        for named in missing if self._steps == _LOOKED_UP[-1] else ():
            if named.text not in self._found:
                self.refuse(named, named.missing)

    def refuse(self, named, why):
        """Note why a function, or one of its modules, is left alone."""
        self._refused.setdefault(named.text, why)
        self._injected.refuse(_SETTING, "; ".join("%s: %s" % item for item in self._refused.items()))

    def done(self):
        """Note that one was replaced."""
        self._injected.done(_SETTING)


class _Fused:
    """Answers the calls of one function."""

    def __init__(self, functions, named, function):
        self._functions, self._named, self._function = functions, named, function
        self._of_modules: Any = weakref.WeakKeyDictionary()
        self._of_none: Any = {}  # form of a call -> what of torch's gives the same, or None, and the calls
        self._asking = threading.local()

    def __call__(self, *args, **kwargs):
        """The result in a tuple; None: the body has to run."""
        if is_compiling() or is_traced() or kwargs or not self._functions.on:
            return None
        if getattr(self._asking, "depth", 0) or casts() or torch._C._len_torch_dispatch_stack():
            return None
        # Of checkpoints, a pass that is computed again has to save as many tensors.
        if transformed() or recognized_functions.keeps_tensors_elsewhere():
            return None
        given = recognized_functions.arguments(self._function.__code__, args)
        if given is None or not recognized_functions.is_plain(given[1]):
            return None
        owner, x, others = given
        known = self._of_none if owner is None else self._of_modules.setdefault(owner, {})
        # The last size of three, or the second of four, is of channels: what comes with it may be of any length.
        form = x.dtype, x.device, x.dim(), x.shape[-1], x.shape[1:-2]
        form += recognized_functions.constants(self._function, owner, others)
        if form not in known:
            if len(known) >= _MOST_FORMS:
                return None
            known[form] = [self._recognize(owner, x, others), 0]
        fused, calls = known[form]
        if fused is None or not fused.takes(x):
            return None
        known[form][1] += 1
        result = fused.compute(owner, x)
        if calls % _AGAIN == 0 and not recognized_functions.same(
            result.detach(), self._ask(owner, x, others), recognized_functions.CLOSE
        ):
            known[form][0] = None
            self._functions.refuse(self._named, "it gives something else than F.%s" % fused.name)
            return None
        self._functions.done()
        return (result,)

    def _recognize(self, owner, x, others):
        try:
            return recognized_functions.recognize(
                lambda owner, x: self._body(owner, x, others),
                owner,
                x,
                recognized_functions.numbers_of(self._function, owner),
            )
        except Exception as error:  # it is not made for other inputs
            self._functions.refuse(self._named, "asked with random numbers, it raised %s" % type(error).__name__)
            return None

    @torch.no_grad()
    def _ask(self, owner, x, others):
        with same_random_numbers():
            return self._body(owner, x.detach(), others)

    def _body(self, owner, x, others):
        """Run the function itself."""
        self._asking.depth = getattr(self._asking, "depth", 0) + 1
        try:
            return self._function(*(() if owner is None else (owner,)), x, *others)
        finally:
            self._asking.depth -= 1
