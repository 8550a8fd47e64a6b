"""Modes of torch that run Python for each operator, only to count operations or to log calls.

Others use the same mechanism for what computation needs, such as fake tensors and checkpoints, or a quantization of the
user's own: those are left alone.
"""

import sys
from typing import Any

# Modules whose modes only watch.
_WATCHING = ("torch.utils.flop_counter", "torch.utils._debug_mode", "torch.testing._internal.logging_tensor")

_off = [False]
_patched: Any = set()  # classes
_skipped: Any = set()  # ids of modes that were entered while they did nothing, and are to be left so


def active():
    """True if such a mode is on in this thread."""
    return any(_only_watches(mode) for mode in _stack())


def left_out():
    """Have those that are entered from now on do nothing; returns what ends that."""
    for kind in _kinds():
        if kind not in _patched:
            _patched.add(kind)
            kind.__enter__, kind.__exit__ = _entering(kind.__enter__), _leaving(kind.__exit__)
    _off[0] = True

    def restore():
        _off[0] = False

    return restore


def _entering(original):
    def __enter__(self):
        if not _off[0] or not _only_watches(self):
            return original(self)
        _skipped.add(id(self))
        return self

    return __enter__


def _leaving(original):
    def __exit__(self, *args):
        if id(self) not in _skipped:
            return original(self, *args)
        _skipped.discard(id(self))
        return None

    return __exit__


def _kinds():
    """The classes whose ``with`` statements enter modes."""
    found = []
    for module, name in (
        ("torch.utils._python_dispatch", "TorchDispatchMode"),
        ("torch.overrides", "TorchFunctionMode"),
        ("torch.utils.flop_counter", "FlopCounterMode"),
    ):
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None:
            found.append(kind)
    return found


def _stack():
    dispatching, overriding = sys.modules.get("torch.utils._python_dispatch"), sys.modules.get("torch.overrides")
    modes = []
    if dispatching is not None:
        modes += dispatching._get_current_dispatch_mode_stack()
    if overriding is not None:
        modes += overriding._get_current_function_mode_stack()
    return modes


def _only_watches(mode):
    return any(kind.__module__ in _WATCHING for kind in type(mode).__mro__)
