"""The forward pass: the outermost call of a module, timed in torch's own code that every such call runs through.

During such a call, torch's original code is in place: the modules inside cost nothing. No class and no object of the
user's is touched.
"""

from typing import Any
from weakref import ref

from torch import Tensor, is_grad_enabled
from torch._C import DisableTorchFunction
from torch.nn import Module

from .. import events, in_place
from ..batches import samples_in
from ..recorder import REC, now, quietly, report_fault
from ..wrap import is_compiling, is_traced
from . import device, settings

MAX_KINDS = 8

_trained: Any = {}  # id -> weak reference of a module that was called in training mode with gradients
_kinds: Any = {}  # class -> None, in order of discovery: a loop over loose layers must not fill the record


class _State:
    __slots__ = ("inside",)

    def __init__(self):
        self.inside = False  # an outermost call is running


_state = _State()
_latest = [0, 0]  # batches that DataLoaders gave, and backward passes when the last one was new

_call: Any = None  # torch's function
_plain: Any = None  # its original code
_timed: Any = None


def install():
    """Time the function behind ``nn.Module.__call__``."""
    global _call, _plain, _timed
    _call = in_place.innermost(Module.__call__)
    if not in_place.is_instrumented(_call):
        _plain, _timed = in_place.instrument(_call, _entered, _left)


def hold(inside):
    """Ignore module calls during a fetch, since they are not a forward pass. Returns the previous state."""
    before = _state.inside
    if inside != before:
        _state.inside = inside
        if _call is not None:
            _call.__code__ = _plain if inside or not REC.on else _timed
    return before


def _entered(module, *args, **kwargs):
    if is_compiling() or is_traced():
        return None
    if not REC.on or hold(True):  # it ended, or another thread was faster
        if _call is not None and not REC.on:
            _call.__code__ = _plain
        return None
    samples = None if _has_batch() else _samples(module, args or kwargs)
    return module, samples, device.mark() if device.present else None, now()


def _has_batch():
    """Whether a DataLoader has given the batch of this call: there was one, and no backward pass since the last."""
    if REC.iterations != _latest[0]:
        _latest[:] = REC.iterations, REC.backwards
    return _latest[0] and _latest[1] == REC.backwards


@quietly
def _samples(module, given):
    """Samples in the input of a training call without a batch of a DataLoader; None: this is no such call."""
    if not module.training or not is_grad_enabled():
        return None
    first = given[0] if isinstance(given, tuple) and given else None
    with DisableTorchFunction():
        # A vector of features, such as the state of an environment, is one sample; a vector of indices may be a batch.
        one = isinstance(first, Tensor) and first.dim() == 1 and first.is_floating_point()
    return 1 if one else samples_in(given)


def _only_prepares(module, result):
    """True for a transform of the input, which is a module too: nothing of it is learned or differentiated."""
    return (
        isinstance(result, Tensor)
        and not _requires_grad(result)
        and is_grad_enabled()
        and next(Module.parameters(module), None) is None
    )


def _requires_grad(tensor):
    with DisableTorchFunction():  # unseen by a mode of the user's
        return tensor.requires_grad


def _mode(module, gradients):
    """What FORWARD's b says: a model that is evaluated by its own training is no teacher, which only ever evaluates."""
    known = _trained.get(id(module))
    same = known is not None and known() is module
    if not module.training:
        return events.HAS_TRAINED if same else events.EVALUATES
    if gradients and not same and (known is not None or len(_trained) < MAX_KINDS):
        _trained[id(module)] = ref(module)
    return events.TRAINS


def _left(call, result):
    end = now()
    hold(False)
    try:
        module, samples, mark, start = call
        if _only_prepares(module, result):
            return
        if mark is not None:
            device.span(events.FORWARD, mark)
        kind = type(module)
        if kind not in _kinds:
            if len(_kinds) >= MAX_KINDS:
                return
            _kinds[kind] = None
            settings.model_seen(module)
        name = REC.names.text(kind.__name__)
        gradients = is_grad_enabled()
        REC.emit(events.FORWARD, start, end, name, int(gradients), _mode(module, gradients))
        if samples is not None:
            REC.emit(events.INPUT, start, start, name, samples)
    except Exception:
        report_fault("forward")
