"""Activations are kept: what activation checkpointing would compute again in the backward pass is not.

A function under ``torch.utils.checkpoint.checkpoint`` is called as if it were not. Left alone is what would train
differently without checkpointing: a batch norm, whose running statistics a second forward pass updates again; random
numbers that are drawn anew; and where no input needs a gradient, so that the reentrant form gives none.
"""

import functools
import types
from typing import Any

import torch

from ..wrap import is_compiling

SETTING = "activations_kept"
_EMPTY = types.CellType()
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

    def applies(self, function, args, kwargs):
        """True if a call may do without checkpointing."""
        if not self._injected.get(SETTING) or is_compiling() or not torch.is_grad_enabled():
            return False
        if not self._known.get(_key(function)):
            return False
        why = self._why_not(args, kwargs)
        if why:
            self._injected.refuse(SETTING, why)
            return False
        self._injected.done(SETTING)
        return True

    def _why_not(self, args, kwargs):
        """Why a call is left alone; None: it need not be."""
        if kwargs.get("context_fn", self._plain) is not self._plain:
            return "the script chooses what is computed again (context_fn)"
        if not kwargs.get("preserve_rng_state", True):
            return "random numbers are drawn anew when activations are computed again (preserve_rng_state=False)"
        reentrant = kwargs.get("use_reentrant") is not False
        if reentrant and not any(torch.is_tensor(value) and value.requires_grad for value in args):
            return "no input of a checkpointed part needs a gradient, so with use_reentrant=True none is computed"
        return None

    def watched(self, original, function, args, kwargs):
        """Call with checkpointing, and note of the first call of each function whether it has a batch norm."""
        key = _key(function)
        if function is None or key in self._known or not self._injected.get(SETTING) or is_compiling():
            return original(function, *args, **kwargs) if function is not None else original(*args, **kwargs)
        functional: Any = torch.nn.functional
        batch_norm, self._normalized = functional.batch_norm, False

        @functools.wraps(batch_norm)
        def noticed(*given, **named):
            self._normalized = True
            return batch_norm(*given, **named)

        functional.batch_norm = noticed
        try:
            return original(function, *args, **kwargs)
        finally:
            functional.batch_norm = batch_norm
            self._known[key] = not self._normalized
            if self._normalized:
                self._injected.refuse(SETTING, "computed again, a batch norm is updated twice in each step")


def _key(function):
    """What is called, as far as its code tells: a module, or a function, whose closures are made anew in each step."""
    owner = getattr(function, "func", function)  # of functools.partial
    owner = getattr(owner, "__self__", owner)
    if isinstance(owner, torch.nn.Module):
        return id(owner)
    cells = [cell.cell_contents for cell in getattr(owner, "__closure__", None) or () if cell != _EMPTY]
    modules = [id(content) for content in cells if isinstance(content, torch.nn.Module)]
    return (getattr(owner, "__code__", id(owner)), *modules)
