"""How a function of somebody else's is wrapped: timed, faithful, and invisible to torch.compile."""

import functools
import sys

import torch._utils
import torch.compiler

from .recorder import REC, now, report_fault

# Under tracing every hook must vanish, or it would break the graph: the compiler folds this test away.
is_compiling = getattr(torch.compiler, "is_compiling", None) or torch._utils.is_compiling


def timed(original, kind, arg=None):
    """Wrap ``original`` so that each call emits one span of ``kind``.

    Args:
        original: the function to call, unchanged in arguments, result and exceptions.
        kind: event kind.
        arg: called with the call's arguments after it has ended; gives the event's ``arg``
            and ``a`` as a tuple. None: both 0.
    """

    @functools.wraps(original)
    def wrapper(*args, **kwargs):
        if is_compiling() or not REC.on:
            return original(*args, **kwargs)
        start = now()
        try:
            return original(*args, **kwargs)
        finally:
            end = now()
            try:
                if arg is None:
                    REC.emit(kind, start, end)
                else:
                    REC.emit(kind, start, end, *arg(*args, **kwargs))
            except Exception:
                report_fault(getattr(original, "__name__", "call"))

    return wrapper


def patch(owner, name, kind, arg=None):
    """Replace ``owner.name`` by its timed form; nothing happens where it does not exist."""
    original = getattr(owner, name, None)
    if callable(original) and not getattr(original, "_flatout", False):
        wrapper = timed(original, kind, arg)
        setattr(wrapper, "_flatout", True)  # noqa: B010 - type checkers know no attributes of functions
        setattr(owner, name, wrapper)
        # Where it was defined too: pickle finds a function by that place, and refuses any other object.
        home = sys.modules.get(getattr(original, "__module__", None) or "")
        if home is not None and vars(home).get(name) is original:
            setattr(home, name, wrapper)


def named(text):
    """An ``arg`` function for :func:`timed` that always gives one name."""
    return lambda *args, **kwargs: (REC.names.text(text),)
