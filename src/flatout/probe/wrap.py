"""Timing of third-party functions: instrumented in place if written in Python, otherwise by a wrapper."""

import torch
import torch._utils
import torch.compiler

from . import in_place
from .recorder import REC, now, report_fault
from .unbound import Unbound, unseen

# Under tracing every hook must disappear, or it would break the graph: the compiler folds this test away.
is_compiling = getattr(torch.compiler, "is_compiling", None) or torch._utils.is_compiling


def is_traced():
    """True while torch.jit traces: whatever is asked of a tensor becomes a part of the graph.

    Ask ``is_compiling`` first, which the compiler knows.
    """
    return torch._C._get_tracing_state() is not None


def casts():
    """True under autocast, for whatever device."""
    enabled = getattr(torch._C, "_is_any_autocast_enabled", torch.is_autocast_enabled)
    return enabled()


def let_compiler_fold(allowed_functions):
    """Allow ``is_compiling`` in torch 2.1, which folds it only if the function is on this list.

    Args:
        allowed_functions: ``torch._dynamo.allowed_functions``.
    """
    allowed_functions._allowed_function_ids.add(id(is_compiling))


def patch(owner, name, kind, arg=None):
    """Emit one span of ``kind`` for each call of ``owner.name``; nothing happens where it does not exist.

    Args:
        owner: module or class.
        name: of the function.
        kind: event kind.
        arg: called with the call's arguments after it has ended; returns the event's ``arg``
            and ``a`` as a tuple. None: both 0.

    Raises:
        NotInstrumented: a Python function without its source.
    """
    original = getattr(owner, name, None)
    if not callable(original) or type(original) is Unbound:
        return
    function = in_place.innermost(original)
    if in_place.is_python(function):
        time_in_place(function, kind, arg)
    else:
        setattr(owner, name, Unbound(_timed(original, kind, arg)))


def time_chosen(owner, name, chosen, kind, arg):
    """Time the calls of a function of C whose one argument is chosen; nothing happens where it does not exist."""
    original = getattr(owner, name, None)
    if original is None or type(original) is Unbound:
        return
    timed = _timed(original, kind, arg)

    @unseen(original)
    # untested: runs under the name of another file, which coverage.py does not know
    def wrapper(*args, **kwargs):
        return (timed if REC.on and len(args) == 1 and chosen(args[0]) else original)(*args, **kwargs)

    setattr(owner, name, Unbound(wrapper))


def time_in_place(function, kind, arg=None, wanted=None):
    """The same for a Python function.

    Args:
        function: it.
        kind: event kind.
        arg: as above.
        wanted: asked before each call whether it counts; None: each does.
    """
    if in_place.is_instrumented(function):
        return

    def enter():
        if is_compiling():
            return None
        if not REC.on:
            return _tell(kind)
        return None if wanted is not None and not wanted() else now()

    def leave(start, result):
        _emit(kind, start, function.__name__, arg)

    def enter_with_arguments(*args, **kwargs):
        start = enter()
        return None if start is None else (start, args, kwargs)

    def leave_with_arguments(call, result):
        start, args, kwargs = call
        _emit(kind, start, function.__name__, arg, args, kwargs)

    if arg is None:
        in_place.instrument(function, enter, leave)
    else:
        in_place.instrument(function, enter_with_arguments, leave_with_arguments)


def _tell(kind):
    if REC.leaving is not None:
        REC.leaving(kind)


def _emit(kind, start, name, arg, args=(), kwargs=None):
    end = now()
    try:
        if arg is None:
            REC.emit(kind, start, end)
        else:
            REC.emit(kind, start, end, *arg(*args, **kwargs or {}))
    except Exception:
        report_fault(name)


def _timed(original, kind, arg):
    """A stand-in for a function of C."""

    @unseen(original)
    # untested: runs under the name of another file, which coverage.py does not know
    def wrapper(*args, **kwargs):
        if is_compiling() or not REC.on:
            return original(*args, **kwargs)
        start = now()
        try:
            return original(*args, **kwargs)
        finally:
            _emit(kind, start, original.__name__, arg, args, kwargs)

    return wrapper


def named(text):
    """An ``arg`` function for :func:`patch` that always gives one name."""
    return lambda *args, **kwargs: (REC.names.text(text),)
