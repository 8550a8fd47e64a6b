"""The forward pass: the root modules are found once, and only their classes are touched.

Until two backward passes have been seen, ``nn.Module.__call__`` is replaced by a version that notes the
outermost calls. Then it is put back, and the classes of the modules found so get a timed ``__call__``.
No hook object is added to any module, so nothing of the probe is pickled or copied with it.
"""

import functools
from typing import Any

from torch import is_grad_enabled
from torch.nn import Module

from . import device, events, settings
from .batches import samples_in
from .patching import is_compiling
from .recorder import REC, now, quietly, report_fault

MAX_ROOTS = 8
BACKWARDS_TO_SEE = 2

_roots: Any = {}  # class -> None, in order of discovery
_inside = [False]  # whether a root's call is running
_original_call: Any = None
_seen = [0]
looking = [False]  # whether the discovery is on
backwards_since = [0]  # backward passes since the last forward pass that was seen
LOST_AFTER = 8  # so many without one: another module has taken over (compiled, wrapped), look once more
_searches = [0]


def install():
    """Begin to look for root modules."""
    global _original_call
    _original_call = Module.__call__
    if getattr(_original_call, "_flatout", False):
        return
    _look()


def hold(inside):
    """Ignore module calls meanwhile: what fetches a batch is no forward pass. Gives back what was before."""
    before = _inside[0]
    _inside[0] = inside
    return before


def _look():
    _searches[0] += 1
    _seen[0] = 0
    looking[0] = True
    Module.__call__ = _timed_call(_original_call, discovering=True)


def _timed_call(original, discovering=False):
    @functools.wraps(original)
    def __call__(self, *args, **kwargs):
        if is_compiling() or not REC.on:
            return original(self, *args, **kwargs)
        if _inside[0]:  # a child of a root, or another thread's call meanwhile
            return original(self, *args, **kwargs)
        _inside[0] = True
        backwards_since[0] = 0
        mark = device.mark() if device.present else None
        start = now()
        try:
            return original(self, *args, **kwargs)
        finally:
            end = now()
            _inside[0] = False
            try:
                if mark is not None:
                    device.span(events.FORWARD, mark)
                kind = type(self)
                if discovering and kind not in _roots and len(_roots) < MAX_ROOTS:
                    _roots[kind] = None
                    settings.model_seen(self)
                name = REC.names.text(kind.__name__)
                REC.emit(events.FORWARD, start, end, name, int(is_grad_enabled()), int(self.training))
                if not REC.iterations and self.training and is_grad_enabled():
                    REC.emit(events.INPUT, start, start, name, samples_in(args or kwargs))
            except Exception:
                report_fault("forward")

    setattr(__call__, "_flatout", True)  # noqa: B010 - mypy knows no attributes of functions
    return __call__


@quietly
def backward_seen():
    """Called at each backward of a discovery, which ends when it has seen enough; and when the modules are lost."""
    if not looking[0]:
        if _searches[0] < 2:
            _look()
        return
    _seen[0] += 1
    if _seen[0] <= BACKWARDS_TO_SEE or not _roots:
        return
    looking[0] = False
    Module.__call__ = _original_call
    for kind in _roots:
        if kind is not Module and not getattr(vars(kind).get("__call__"), "_flatout", False):
            kind.__call__ = _timed_call(kind.__call__)
