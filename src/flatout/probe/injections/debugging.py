"""Switches for debugging that a script sets stay off, and Python's garbage is collected seldom."""

import atexit
import functools
import gc
import tracemalloc
from typing import Any

import torch
from torch.distributions import Distribution

COLLECTIONS_SKIPPED = 100  # of gc.collect(), of which the first of each so many goes through
_THRESHOLDS = (50_000, 20, 20)  # Python 3.11 has (700, 10, 10)
_FROZEN = 4  # full collections, whose survivors are then left out of later ones


def install(injected, watch):
    """Keep the named switches off, whatever the script asks for."""
    names = [name for name in (injected.get("debugging_off") or "").split(",") if name]
    if known := [name for name in names if name in _KEPT_OFF]:
        _keep_off(injected, {name: _KEPT_OFF[name] for name in known})
    for name in names:
        if name not in known:
            injected.refuse("debugging_off", "%r is none of %s" % (name, ", ".join(_KEPT_OFF)))
    if injected.get("collect_seldom"):
        seldom = _Seldom(injected)
        seldom.switch(True)
        injected.on_switch("collect_seldom", seldom.switch)


def _keep_off(injected, kinds):
    switches = {name: kind(functools.partial(injected.done, "debugging_off")) for name, kind in kinds.items()}

    def switch(wanted):
        for name, one in switches.items():
            one.switch(name in (wanted or "").split(","))

    switch(injected.get("debugging_off"))
    injected.on_switch("debugging_off", switch)


class _Debugging:
    """One switch for debugging.

    Attributes:
        off: it stays off, whatever the script asks for.
        asked: the arguments with which the script set it last.
        when_off: arguments with which it is off.

    Args:
        done: called when it would be on.
    """

    when_off: Any = (False,)
    now: Any
    patch: Any
    apply: Any

    def __init__(self, done):
        self.off, self.done = False, done
        self.asked: Any = self.now()
        self.patch()

    def switch(self, off):
        """Keep it off from now on, or as the script has it."""
        if off and not self.off and self.is_on(*self.asked):
            self.done()
        self.off = off
        self.apply(*(self.when_off if off else self.asked))

    def setter(self, original):
        """A function that the script sets it with: what it asks for is kept, and done unless it stays off."""

        @functools.wraps(original)
        def asks(*args, **kwargs):
            self.asked = self.arguments(*args, **kwargs)
            if not self.off:
                self.apply(*self.asked)
            elif self.is_on(*self.asked):
                self.done()

        return asks

    def arguments(self, *args, **kwargs):
        """The arguments of the setter, all by position."""
        return args

    def is_on(self, mode, *more):
        """True if it is on with these arguments."""
        return bool(mode)


class _AnomalyMode(_Debugging):
    when_off = (False, True)

    def now(self):
        return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()

    def patch(self):
        self.apply = torch.set_anomaly_enabled
        torch.set_anomaly_enabled = self.setter(self.apply)
        torch.is_anomaly_enabled = lambda: self.asked[0]
        torch.is_anomaly_check_nan_enabled = lambda: self.asked[1]

    def arguments(self, mode, check_nan=True):
        return mode, check_nan


class _Tracemalloc(_Debugging):
    """A snapshot that the script takes begins the tracing: it would fail otherwise."""

    when_off = (0,)

    def now(self):
        return (tracemalloc.get_traceback_limit() if tracemalloc.is_tracing() else 0,)

    def patch(self):
        self._is_tracing, self._start, self._stop = tracemalloc.is_tracing, tracemalloc.start, tracemalloc.stop
        tracemalloc.start = self.setter(self._start)
        tracemalloc.is_tracing = self._traces

    def apply(self, frames):
        """Trace so many frames; none: trace nothing."""
        if not frames:
            self._stop()
        elif not self._is_tracing():
            self._start(frames)

    def arguments(self, nframe=1):
        return (nframe,)

    def _traces(self):
        if self.off and not self._is_tracing():
            self._start(self.asked[0] or 1)
        return self._is_tracing()


class _Deterministic(_Debugging):
    when_off = (False, False)

    def now(self):
        return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()

    def patch(self):
        self._set = torch.use_deterministic_algorithms
        torch.use_deterministic_algorithms = self.setter(self._set)
        torch.are_deterministic_algorithms_enabled = lambda: self.asked[0]
        torch.is_deterministic_algorithms_warn_only_enabled = lambda: self.asked[1]

    def apply(self, mode, warn_only):
        """Set it."""
        self._set(mode, warn_only=warn_only)

    def arguments(self, mode, *, warn_only=False):
        return mode, warn_only


class _BackwardThreads(_Debugging):
    """Backward passes in one thread."""

    when_off = (True,)

    def now(self):
        return (torch._C._is_multithreading_enabled(),)

    def patch(self):
        self.apply = torch._C._set_multithreading_enabled
        setattr(torch._C, "_set_multithreading_enabled", self.setter(self.apply))  # noqa: B010
        setattr(torch._C, "_is_multithreading_enabled", lambda: self.asked[0])  # noqa: B010

    def is_on(self, mode):
        return not mode


class _ValidateArgs(_Debugging):
    """Arguments are checked by default; a distribution that is told to check still does."""

    when_off = (False,)

    def now(self):
        return (Distribution._validate_args,)

    def patch(self):
        self.apply = Distribution.set_default_validate_args
        original = Distribution.__init__

        @functools.wraps(original)
        def counted(distribution, *args, **kwargs):
            if self.off:
                self.done()
            original(distribution, *args, **kwargs)

        setattr(Distribution, "set_default_validate_args", staticmethod(self.setter(self.apply)))  # noqa: B010
        setattr(Distribution, "__init__", counted)  # noqa: B010

    def is_on(self, mode):
        return False  # it is by default: distributions that are made count


_KEPT_OFF = {
    "anomaly_mode": _AnomalyMode,
    "tracemalloc": _Tracemalloc,
    "deterministic": _Deterministic,
    "backward_threads": _BackwardThreads,
    "validate_args": _ValidateArgs,
}


class _Seldom:
    """What survives the first full collections lives as long as the training, as a rule: it is not walked again."""

    def __init__(self, injected):
        self._injected, self._on = injected, False
        self._set_threshold = gc.set_threshold
        self._asked = gc.get_threshold()
        self._calls = self._frozen = 0
        gc.collect = self._sometimes(gc.collect)
        setattr(gc, "set_threshold", self._asks)  # noqa: B010
        gc.callbacks.append(self._freeze)
        atexit.register(self._thaw)

    def switch(self, on):
        """Collect seldom from now on, or as the script has it."""
        self._on = bool(on)
        if on:
            self._injected.done("collect_seldom")
            self._set_threshold(*_THRESHOLDS)
        else:
            self._set_threshold(*self._asked)
            gc.unfreeze()
            self._frozen = 0

    def _thaw(self):
        """What is frozen is not freed as the interpreter ends: nanobind would report it as leaked."""
        self.switch(False)

    def _sometimes(self, original):
        @functools.wraps(original)
        def collect(generation=2):
            if self._on:
                self._calls += 1
                if self._calls % COLLECTIONS_SKIPPED != 1:
                    return 0
            return original(generation)

        return collect

    def _asks(self, *thresholds):
        self._asked = thresholds
        if not self._on:
            self._set_threshold(*thresholds)

    def _freeze(self, phase, info):
        if self._on and phase == "stop" and info["generation"] == 2 and self._frozen < _FROZEN:
            self._frozen += 1
            gc.freeze()
