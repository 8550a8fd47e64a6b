"""Switches for debugging that a script sets stay off, and Python's garbage is collected seldom."""

import functools
import gc
import tracemalloc

import torch
from torch.distributions import Distribution

COLLECTIONS_SKIPPED = 100  # of gc.collect(), of which the first of each so many goes through
_THRESHOLDS = (50_000, 20, 20)  # Python 3.11 has (700, 10, 10)
_FROZEN = 4  # full collections, whose survivors are then left out of later ones


def install(injected, watch):
    """Keep the named switches off, whatever the script asks for."""
    for name in (injected.get("debugging_off") or "").split(","):
        if name in _KEPT_OFF:
            _KEPT_OFF[name](functools.partial(injected.done, "debugging_off"))
        elif name:
            injected.refuse("debugging_off", "%r is none of %s" % (name, ", ".join(_KEPT_OFF)))
    if injected.get("collect_seldom"):
        _collect_seldom(functools.partial(injected.done, "collect_seldom"))


def _anomaly_mode(done):
    asked = [False, True]

    def set_anomaly_enabled(mode, check_nan=True):
        asked[:] = [mode, check_nan]
        if mode:
            done()

    torch.set_anomaly_enabled = set_anomaly_enabled
    torch.is_anomaly_enabled = lambda: asked[0]
    torch.is_anomaly_check_nan_enabled = lambda: asked[1]


def _tracemalloc(done):
    """A snapshot that the script takes begins the tracing: it would fail otherwise."""
    really_tracing, start = tracemalloc.is_tracing, tracemalloc.start
    frames = [tracemalloc.get_traceback_limit()]

    def kept_off(nframe=1):
        frames[0] = nframe
        done()

    def is_tracing():
        if not really_tracing():
            start(frames[0])
        return True

    if really_tracing():  # PYTHONTRACEMALLOC
        tracemalloc.stop()
        done()
    tracemalloc.start = kept_off
    tracemalloc.is_tracing = is_tracing


def _deterministic(done):
    asked = [False, False]

    def use_deterministic_algorithms(mode, *, warn_only=False):
        asked[:] = [mode, warn_only]
        if mode:
            done()

    torch.use_deterministic_algorithms = use_deterministic_algorithms
    torch.are_deterministic_algorithms_enabled = lambda: asked[0]
    torch.is_deterministic_algorithms_warn_only_enabled = lambda: asked[1]


def _backward_threads(done):
    asked = [True]

    def set_multithreading_enabled(mode):
        asked[0] = mode
        if not mode:
            done()

    torch._C._set_multithreading_enabled = set_multithreading_enabled
    torch._C._is_multithreading_enabled = lambda: asked[0]


def _validate_args(done):
    """Arguments are checked by default; a distribution that is told to check still does."""
    Distribution.set_default_validate_args(False)
    setattr(Distribution, "set_default_validate_args", staticmethod(lambda value: None))  # noqa: B010
    original = Distribution.__init__

    @functools.wraps(original)
    def counted(self, *args, **kwargs):
        done()
        original(self, *args, **kwargs)

    setattr(Distribution, "__init__", counted)  # noqa: B010


_KEPT_OFF = {
    "anomaly_mode": _anomaly_mode,
    "tracemalloc": _tracemalloc,
    "deterministic": _deterministic,
    "backward_threads": _backward_threads,
    "validate_args": _validate_args,
}


def _collect_seldom(done):
    """What survives the first full collections lives as long as the training, as a rule: it is not walked again."""
    real, calls, frozen = gc.collect, [0], [0]

    def collect(generation=2):
        calls[0] += 1
        if calls[0] % COLLECTIONS_SKIPPED == 1:
            return real(generation)
        return 0

    def freeze(phase, info):
        if phase == "stop" and info["generation"] == 2 and frozen[0] < _FROZEN:
            frozen[0] += 1
            gc.freeze()

    gc.collect = functools.wraps(real)(collect)
    gc.callbacks.append(freeze)
    gc.set_threshold(*_THRESHOLDS)
    setattr(gc, "set_threshold", lambda *thresholds: None)  # noqa: B010
    done()
