"""Timers around the user's hooks on modules and tensors, and around Python's garbage collector.

A hook may keep what the loss needs: a step without it could fail, so its calls are timed instead.
"""

import functools
import gc
import inspect
import operator
import os
from typing import Any

import torch
from torch.nn.modules import module as torch_module

from .. import live_objects
from ..recorder import REC, now
from ..sites import PROBE_FOLDER, describe_frame

_OWN = (os.path.dirname(os.path.abspath(torch.__file__)) + os.sep, PROBE_FOLDER)
_OF_MODULES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_OF_TENSORS = ("_backward_hooks", "_post_accumulate_grad_hooks")


class _State:
    __slots__ = ("counting", "inside")

    def __init__(self):
        self.counting = False  # inside the own part of a step that counts
        self.inside = False  # a hook runs: those that it leads to are part of it


STATE = _State()


class Spent:
    """Time in one place."""

    __slots__ = ("calls", "code", "ns")

    def __init__(self, code=None):
        self.code = code
        self.ns = self.calls = 0


class Timed:
    """Stands in for a hook, and times its calls. Pickles as the hook."""

    def __init__(self, hook, spent):
        self.hook = hook
        self.spent = spent

    def __call__(self, *args, **kwargs):
        """Call the hook."""
        if STATE.inside or not STATE.counting:
            return self.hook(*args, **kwargs)
        STATE.inside = True
        start = now()
        try:
            return self.hook(*args, **kwargs)
        finally:
            self.spent.ns += now() - start
            self.spent.calls += 1
            STATE.inside = False

    def __getattr__(self, name):
        """Attributes of the hook, which torch and libraries may set or ask for."""
        if name == "hook":  # not there yet: a copy is being made
            raise AttributeError(name)
        return getattr(self.hook, name)

    def __reduce_ex__(self, protocol):
        """The hook itself."""
        return operator.itemgetter(0), ((self.hook,),)


class HookTimers:
    """Timers in place of the user's hooks, of all modules that there are.

    Attributes:
        spent: code of a hook -> time in it.
    """

    def __init__(self):
        self.spent: Any = {}
        self._places: Any = []  # (dictionary of hooks, key, hook)
        for hooks in _dictionaries():
            for key, hook in list(hooks.items()):
                code = _code(hook)
                if code is not None and not os.path.abspath(code.co_filename).startswith(_OWN):
                    self.spent.setdefault(code, Spent(code))
                    self._places.append((hooks, key, hook))

    def install(self):
        """Put the timers in; returns what takes them out."""
        timed = []
        for hooks, key, hook in self._places:
            if hooks.get(key) is hook:
                hooks[key] = timer = Timed(hook, self.spent[_code(hook)])
                timed.append((hooks, key, timer))

        def restore():
            for hooks, key, timer in timed:
                if hooks.get(key) is timer:
                    hooks[key] = timer.hook

        return restore

    def reset(self):
        """Begin to count anew."""
        for spent in self.spent.values():
            spent.ns = spent.calls = 0

    def called(self):
        """The hooks that ran, with their time."""
        return [spent for spent in self.spent.values() if spent.calls]


def _dictionaries():
    """Every dictionary of hooks: torch's global ones, those of modules, and of their weights."""
    for name in _OF_MODULES:
        yield getattr(torch_module, "_global" + name, {})
    for module in live_objects.modules():
        parts = vars(module)
        for name in _OF_MODULES:
            if parts.get(name):
                yield parts[name]
        for weight in list((parts.get("_parameters") or {}).values()):
            for name in _OF_TENSORS:
                hooks = getattr(weight, name, None)
                if hooks:
                    yield hooks


def _code(hook):
    """The Python code that a hook runs; None for a function of C."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    hook = inspect.unwrap(getattr(hook, "__func__", hook))
    code = getattr(hook, "__code__", None)
    return code if code is not None else getattr(type(hook).__call__, "__code__", None)


def site(code):
    """Name id of the line where a function begins."""
    path, line, function, _, _ = describe_frame(code, code.co_firstlineno)
    return REC.names.add("site", file=path, line=line, function=function)


class CollectorTimer:
    """Time in Python's garbage collector, called by itself or by the script."""

    def __init__(self):
        self.spent = Spent()
        self._start = 0

    def install(self):
        """Begin; returns what ends it."""
        gc.callbacks.append(self._called)

        def restore():
            gc.callbacks.remove(self._called)

        return restore

    def _called(self, phase, info):
        if phase == "start":
            self._start = now() if STATE.counting else 0
        elif self._start:
            self.spent.ns += now() - self._start
            self.spent.calls += 1
            self._start = 0
