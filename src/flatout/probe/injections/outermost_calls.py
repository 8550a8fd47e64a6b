"""Calls of a model by the training itself: the outermost module, not those inside it."""

import functools

from torch.nn import Module

from ..wrap import is_compiling


def patch(answer):
    """Have ``answer(original, module, args, kwargs)`` make each outermost call of a module.

    One without parameters, such as a loss, is asked for too, and what it calls may still be outermost.
    """
    original = Module.__call__
    inside = False

    @functools.wraps(original)
    def __call__(self, *args, **kwargs):
        nonlocal inside
        if inside or is_compiling():
            return original(self, *args, **kwargs)
        inside = next(Module.parameters(self), None) is not None
        try:
            return answer(original, self, args, kwargs)
        finally:
            inside = False

    Module.__call__ = __call__
