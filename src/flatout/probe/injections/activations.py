"""Activations are kept: what activation checkpointing would compute again in the backward pass is not.

A function under ``torch.utils.checkpoint.checkpoint`` is called as if it were not. Left alone is what would train
differently without checkpointing: the reentrant form, whose first pass computes without gradients; a function that
changes anything but its result, as a batch norm its statistics, which a second pass does again; random numbers that
are drawn anew; and all calls inside of one that is left alone.
"""

import functools
import random
import threading
import types
from typing import Any

import torch

from ..recorder import report_fault
from ..wrap import is_compiling
from .side_effects import other_generators

SETTING = "activations_kept"
_EMPTY = types.CellType()
_PLAIN = (int, float, bool, str)
_TWICE = "computed again, a part updates statistics, counters or random numbers of its own twice in each step"
_OPTIONS = (
    "use_reentrant",
    "preserve_rng_state",
    "context_fn",
    "determinism_check",
    "debug",
    "early_stop",
    "respect_saved_tensors_hooks",
)


def install(injected, watch):
    """Patch ``torch.utils.checkpoint`` once it is imported, before anything can take a name from it."""
    if injected.get(SETTING):
        watch("torch.utils.checkpoint", functools.partial(_patch, injected))


def _patch(injected, module):
    kept = _Kept(injected, module)
    original = module.checkpoint

    @functools.wraps(original)
    def checkpoint(function=None, *args, **kwargs):
        if function is not None and kept.applies(function, args, kwargs):
            return function(*args, **{name: value for name, value in kwargs.items() if name not in _OPTIONS})
        return kept.watched(original, function, args, kwargs)

    module.checkpoint = checkpoint


class _Kept:
    def __init__(self, injected, module):
        self._injected, self._plain = injected, module.noop_context_fn
        self._known: Any = {}  # what is called -> it may be called directly
        self._normalized = False  # a batch norm was seen in the call that is watched
        self._inside = threading.local()  # of a call with checkpointing, in either pass

    def applies(self, function, args, kwargs):
        """True if a call may do without checkpointing."""
        if not self._injected.get(SETTING) or is_compiling() or not torch.is_grad_enabled() or _is_transformed():
            return False
        if getattr(self._inside, "depth", 0) or not self._known.get(_key(function)):
            return False
        why = self._why_not(kwargs)
        if why:
            self._injected.refuse(SETTING, why)
            return False
        self._injected.done(SETTING)
        return True

    def _why_not(self, kwargs):
        """Why a call is left alone; None: it need not be."""
        if kwargs.get("context_fn", self._plain) is not self._plain:
            return "the script chooses what is computed again (context_fn)"
        if not kwargs.get("preserve_rng_state", True):
            return "random numbers are drawn anew when activations are computed again (preserve_rng_state=False)"
        if kwargs.get("use_reentrant") is not False:
            return "with use_reentrant=True the first pass computes without gradients, which may be another training"
        return None

    def watched(self, original, function, args, kwargs):
        """Call with checkpointing, and note of the first call of each function whether it changes something."""
        if function is None:
            return original(*args, **kwargs)
        if not self._injected.get(SETTING) or is_compiling() or not torch.is_grad_enabled():
            return original(function, *args, **kwargs)

        def inside(*given, **named):
            self._inside.depth = getattr(self._inside, "depth", 0) + 1
            try:
                return function(*given, **named)
            finally:
                self._inside.depth -= 1

        key = _key(function)
        if key in self._known:
            return original(inside, *args, **kwargs)
        functional: Any = torch.nn.functional
        batch_norm, self._normalized = functional.batch_norm, False

        @functools.wraps(batch_norm)
        def noticed(*given, **named):
            self._normalized = True
            return batch_norm(*given, **named)

        before = self._seen(function)
        functional.batch_norm = noticed
        try:
            return original(inside, *args, **kwargs)
        finally:
            functional.batch_norm = batch_norm
            self._known[key] = not self._normalized and before is not None and self._seen(function) == before
            if not self._known[key]:
                self._injected.refuse(SETTING, _TWICE)

    def _seen(self, function):
        """What a call may change, as text; None: that cannot be said."""
        try:
            return repr(_state(function))
        except Exception:
            report_fault(SETTING)
            return None


def _is_transformed():
    """True within torch.func's gradients and maps."""
    functorch = getattr(torch._C, "_functorch", None)
    return functorch is not None and functorch.peek_interpreter_stack() is not None


def _key(function):
    """What is called, as far as its code tells: a module, or a function, whose closures are made anew in each step."""
    owner = _owner(function)
    if isinstance(owner, torch.nn.Module):
        return id(owner)
    return (
        getattr(owner, "__code__", (type(owner), id(owner))),
        *(id(one) for one in _cells(owner) if _is_module(one)),
    )


def _state(function):
    """What a call may change besides its result: buffers, plain attributes, random numbers."""
    owner = _owner(function)
    code, names = getattr(owner, "__code__", None), getattr(owner, "__globals__", {})
    reached = [owner, *_cells(owner), *(names.get(name) for name in code.co_names)] if code else [owner]
    reached += [part for one in reached if type(one) in (list, tuple) for part in one]
    modules = [module for one in reached if _is_module(one) for module in one.modules()]
    reached += [value for module in modules for value in vars(module).values()]
    return (
        other_generators(),
        [_generator(one) for one in reached if isinstance(one, (torch.Generator, random.Random))],
        [one.bit_generator.state for one in reached if hasattr(type(one), "bit_generator")],
        [buffer._version for module in modules for buffer in module.buffers(recurse=False)],
        [(name, value) for module in modules for name, value in vars(module).items() if type(value) in _PLAIN],
    )


def _generator(one):
    return bytes(one.get_state()) if isinstance(one, torch.Generator) else one.getstate()


def _owner(function):
    owner = getattr(function, "func", function)  # of functools.partial
    return getattr(owner, "__self__", owner)


def _cells(owner):
    return [cell.cell_contents for cell in getattr(owner, "__closure__", None) or () if cell != _EMPTY]


def _is_module(one):
    return isinstance(one, torch.nn.Module)
