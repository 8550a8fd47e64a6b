"""What a module that does not train makes of a sample, made once: from the second pass on it comes from memory.

A sample is known by the bytes that the module is given for it, so that random samples are computed each time. Samples
may have been computed in another batch, which can change the last bits: results are compared within a tolerance, for
the first calls and now and then later. A module whose weights change, that draws random numbers, has hooks or stores
something on itself is left alone.
"""

import hashlib
import threading
from typing import Any

import torch
from torch.nn.modules import module as torch_modules

from .. import in_place, live_objects, memory_room
from ..module_passes import tensors_in, transformed
from ..recorder import report_fault
from ..sample_memory import KEY_BYTES, SampleMemory
from ..wrap import casts, is_compiling, is_traced
from .batch_rows import Form, NotByRows, bytes_of_rows, close
from .beginnings import at_beginnings
from .decoded import Kept, wanted_room
from .module_state import ModuleState, Unknown
from .object_state import PLAIN
from .read_files import ReadFiles
from .side_effects import Draws

SETTING = "features_once"
_CHECKED = 8  # calls that are computed as well, and compared, before stored results are relied on
_AGAIN = 64  # of later calls, each so many is computed as well
# Of a module, as in training and in validation: where its weights change, as those of a moving average, nothing comes
# again.
_MOST_STATES = 4
_MOST_CHANGING = 2  # calls after which it holds something else than before
_MEMORY_SHARE = 0.25  # of what is available, where no room is given
_LOOKED_UP = 3  # times, until the module is found


class _LeftAlone(Exception):
    """Nothing of a module can be kept; the text says why."""


def install(injected, watch):
    """Look the module up when a pass begins or a backward pass runs."""
    room = wanted_room(injected) or int(_MEMORY_SHARE * memory_room.available_bytes())
    try:
        kept = Kept(SampleMemory(int(room)), injected, SETTING)
    except (OSError, ValueError, AttributeError) as error:  # no memfd_create before Linux 3.17
        injected.refuse(SETTING, "%s bytes cannot be shared: %s" % (room, error))
        return
    at_beginnings(_Features(injected, kept).look_up, watch)


class _Features:
    """The modules of the setting's name."""

    def __init__(self, injected, kept):
        self._injected, self._kept = injected, kept
        self._kind, _, self._path = injected.get(SETTING).partition(".")
        self._looked_up = 0
        self._modules: Any = {}  # id -> _Module

    def look_up(self):
        """Find the modules, if they are not found yet."""
        if self._modules or self._looked_up == _LOOKED_UP:
            return
        self._looked_up += 1
        try:
            for root in live_objects.outermost():
                if type(root).__name__ == self._kind:
                    self._found(root)
        except Exception:
            report_fault(SETTING)
        if not self._modules and self._looked_up == _LOOKED_UP:
            self._refuse("there is no such module")

    def _found(self, root):
        part = dict(root.named_modules()).get(self._path)
        if part is None or id(part) in self._modules:
            return
        function = in_place.innermost(type(part).forward)
        self._modules[id(part)] = _Module(part, function, self._kept, self._refuse)
        if in_place.is_instrumented(function):
            return
        try:
            in_place.instrument(function, self._called)
        except in_place.NotInstrumented as error:
            self._refuse(str(error))

    def _called(self, module, *args, **kwargs):
        """The result in a tuple; None: the body has to run."""
        found = self._modules.get(id(module))
        return None if found is None else found.called(args, kwargs)

    def _refuse(self, why):
        self._injected.refuse(SETTING, why)


class _Module:
    """One module, and what is stored of it."""

    def __init__(self, module, function, kept, refuse):
        self._module, self._function, self._kept, self._refuse = module, function, kept, refuse
        self._files = ReadFiles()
        self._running = threading.local()  # .on: a call that is computed to be stored
        self._alone = False
        self._state = ModuleState(module)
        self._states: Any = []  # what was seen of it, objects kept for that, and its digest
        self._forms: Any = {}  # of what it gives, by what is given besides tensors
        self._agreed = self._hits = self._changing = 0

    def called(self, args, kwargs):
        """The result in a tuple; None: the body has to run."""
        if self._alone or getattr(self._running, "on", False) or is_compiling() or transformed() or is_traced():
            return None
        if torch_modules._global_forward_hooks or torch_modules._global_forward_pre_hooks:
            return None  # they may change what a layer gives
        try:
            state = self._state.look()
            call = self._looked_up(state, args, kwargs)
        except Exception as error:
            self._left_alone(error)
            return None
        if call is None:
            return None
        around, keys, found = call
        if found is not None:
            self._hits += 1
            if self._hits % _AGAIN and self._agreed >= _CHECKED:
                self._kept.used()
                return (found,)
        given, draws = tensors_in((args, kwargs)), Draws()
        versions = [one._version for one in given]
        self._running.on = True
        try:
            with self._files.watched() as files:
                made = self._function(self._module, *args, **kwargs)
        finally:
            self._running.on = False
        try:
            if [one._version for one in given] != versions:
                raise _LeftAlone("a call changes what it is given")
            if files.paths:
                raise _LeftAlone("a call opens files")
            if draws.finish() or draws.count:
                raise _LeftAlone("it draws random numbers")
            if self._state.look()[0] != state[0]:
                self._changing += 1  # the first calls may fill caches
                if self._changing > _MOST_CHANGING:
                    raise _LeftAlone("a call changes what it holds")
                return (made,)
            self._keep(around, keys, [*given, *self._state.held()], found, made)
        except Exception as error:
            self._left_alone(error)
        return (made,)  # it has run, and does not run twice

    def _looked_up(self, state, args, kwargs):
        """What is given beside tensors, the key of each sample, and the stored result; None: nothing is to be kept."""
        given = tensors_in((args, kwargs))
        if torch.is_inference_mode_enabled() or not given or not given[0].dim():
            return None
        count = len(given[0])
        if not count or any(not one.dim() or len(one) != count for one in given):
            return None
        if torch.is_grad_enabled() and any(one.requires_grad for one in (*given, *self._module.parameters())):
            return None
        try:
            around = repr((casts(), [str(one.dtype) for one in given], list(_plain((args, kwargs)))))
        except TypeError:
            return None
        keys = self._keys(self._digest(state), around, given)
        form = self._forms.get(around)
        stored = [self._kept.find(key) for key in keys] if form is not None else [None]
        return around, keys, form.joined(stored) if all(row is not None for row in stored) else None

    def _digest(self, state):
        for looked, _kept, found in self._states:
            if looked == state[0]:
                return found
        if len(self._states) == _MOST_STATES:
            raise _LeftAlone("what it computes with changes")
        found = self._state.digest()
        self._states.append((*state, found))
        return found

    @staticmethod
    def _keys(of_module, around, given):
        rows = [bytes_of_rows(one) for one in given]
        shapes = [repr((around, tuple(one.shape[1:]))).encode() for one in given]
        keys = []
        for place in range(len(given[0])):
            made = hashlib.blake2b(of_module, digest_size=KEY_BYTES)
            for shape, row in zip(shapes, rows):
                made.update(shape)
                made.update(row[place])
            keys.append(made.digest())
        return keys

    def _keep(self, around, keys, others, found, made):
        """Store what it gave for each sample, or compare it with what is stored."""
        form = self._forms[around] = Form(made, len(keys), others)
        if found is None:
            for key, row in zip(keys, form.rows(made)):
                self._kept.keep(key, row)
        elif close(found, made, casts()):
            self._agreed += 1
            self._kept.used()
        else:
            raise _LeftAlone("it gave something else than before for the same samples")

    def _left_alone(self, error):
        known = isinstance(error, (_LeftAlone, NotByRows, Unknown))
        if not known and not isinstance(error, (RuntimeError, TypeError, ValueError, OSError, AttributeError)):
            report_fault(SETTING)
        self._alone = True
        self._refuse(str(error) if known else "what it is given or gives cannot be kept (%s)" % type(error).__name__)


def _plain(value):
    """All that is no tensor in arguments, as text.

    Raises:
        TypeError: there is something else in them.
    """
    if isinstance(value, torch.Tensor):
        return
    if type(value) in PLAIN or isinstance(value, (torch.dtype, torch.device)):
        yield repr(value)
    elif type(value) is dict:
        for name, one in value.items():
            yield repr(name)
            yield from _plain(one)
    elif type(value) in (list, tuple):
        yield str(len(value))
        for one in value:
            yield from _plain(one)
    else:
        raise TypeError
