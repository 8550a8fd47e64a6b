"""Forward and backward passes of a copy of one of the training's modules, between two steps.

What the module has, gradients and buffers too, so stays as it is; random numbers do within ``same_random_numbers``.
What a forward pass changes outside of its module no copy keeps: modules whose code shows that are left alone.
"""

import contextlib
import copy
import dis
import inspect
import random
import sys
import types
from typing import Any

import torch

from . import memory_room
from .device_rates import finish_kernels
from .kept_batches import NotDoubled, copied, doubled
from .recorder import REC, now
from .sites import is_user_file


class ModulePasses:
    """The passes of one module.

    Args:
        module: is copied, and the copy called.
        args: of a call; they are copied as well.
        named: names of its other arguments.

    Attributes:
        args: the copies.

    Raises:
        NotDoubled: there are no samples in them, the user's hooks would see the passes, or something outside would.
        Exception: it cannot be copied.
    """

    def __init__(self, module, args, named=()):
        if named:
            raise NotDoubled("the model is called with %s by name" % ", ".join(map(str, named))[:100])
        parts = list(torch.nn.Module.modules(module))
        if any(is_hooked(part) for part in parts):
            raise NotDoubled("hooks on the model would see its passes")
        outside = next(filter(None, map(_reaches_outside, {type(part) for part in parts})), None)
        outside = outside or next(filter(None, map(_functions_reach_outside, parts)), None)
        if outside is not None:
            raise NotDoubled(outside)
        lacking = memory_room.lacking()  # of the GPU, too
        if lacking is not None:
            raise NotDoubled(lacking)
        if (
            sum(tensor.nbytes for tensor in (*torch.nn.Module.parameters(module), *module.buffers()))
            > memory_room.for_copies()
        ):
            raise NotDoubled("the model is too large to be copied")
        self.args: Any = tuple(copied(one) for one in args)
        self.size = len(args[0]) if args and isinstance(args[0], torch.Tensor) and args[0].dim() else 0
        if not self.size:
            raise NotDoubled("the model's first argument is no tensor with samples")
        self._module: Any = copy.deepcopy(module)
        if not _tensors_of(module).isdisjoint(_tensors_of(self._module)):
            raise NotDoubled("a copy of the model shares tensors with it")

    def joined(self, times):
        """The arguments for this many times the samples, a power of two.

        Raises:
            NotDoubled: they cannot be joined.
        """
        args, size = self.args, self.size
        while times > 1:
            args, size, times = tuple(_twice(one, size) for one in args), 2 * size, times // 2
        return args

    def lay_out(self, layouts):
        """Give the copy's weights these memory formats, one for each number of dimensions."""
        for layout in layouts:
            with contextlib.suppress(RuntimeError):  # weights of other dimensions
                self._module.to(memory_format=layout)

    def outputs(self, args):
        """What a forward pass gives that has gradients."""
        with _precision(args[0].device):
            return _with_gradients(self._module(*args))

    def sources(self, args):
        """What a backward pass makes gradients of."""
        return [one for one in (*self._module.parameters(), *args) if getattr(one, "requires_grad", False)]

    def take_ns(self, calls):
        """Time of the forward passes with each of these arguments in turn, and of a backward pass through all."""
        sources = self.sources(calls[0])
        finish_kernels()
        start = now()
        outputs = [one for args in calls for one in self.outputs(args)]
        torch.autograd.grad(outputs, sources, [torch.ones_like(one) for one in outputs], allow_unused=True)
        finish_kernels()
        return now() - start


@contextlib.contextmanager
def same_random_numbers():
    """Restore the generators of torch, Python and NumPy at the end."""
    numpy: Any = sys.modules.get("numpy")
    of_python, of_numpy = random.getstate(), numpy.random.get_state() if numpy is not None else None
    try:
        with torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_initialized() else []):
            yield
    finally:
        random.setstate(of_python)
        if of_numpy is not None:
            numpy.random.set_state(of_numpy)


def transformed():
    """True in a function that torch.func transforms: its tensors stand for others."""
    functorch: Any = getattr(torch._C, "_functorch", None)
    return functorch is not None and functorch.peek_interpreter_stack() is not None


def kept_arguments(args):
    """The arguments, apart from the graph that made them."""
    return tuple(
        one.detach().requires_grad_(one.requires_grad) if isinstance(one, torch.Tensor) else one for one in args
    )


def _precision(device):
    """That of the training's first autocast, if it has one."""
    name = REC.process.get("autocast")
    return torch.autocast(device.type, dtype=getattr(torch, name)) if name else contextlib.nullcontext()


def _twice(argument, size):
    """An argument for twice the samples; one that holds no tensors stays."""
    if isinstance(argument, (torch.Tensor, list, tuple, dict)):
        made: Any = doubled(argument, size)
        return made.requires_grad_(argument.requires_grad) if isinstance(argument, torch.Tensor) else made
    return argument


# Names of functions and methods that write somewhere.
_WRITE = {"write", "writelines", "writerow", "open", "print", "put", "send", "save", "dump", "system", "add_scalar"}
_WRITE |= {"info", "warning", "log_dict", "log_metrics"}
_MOST_FUNCTIONS = 64
_STORES = {"STORE_ATTR"}
_CONSTANT = (types.ModuleType, type, int, float, complex, str, bytes, tuple, frozenset, type(None), torch.dtype)


def _reaches_outside(kind):
    """Why calls of a copy of a module of this class may be seen outside of it, as text; None: nothing shows that."""
    if kind.__module__.partition(".")[0] == "torch":
        return None
    own = [one for one in kind.__mro__[::-1] if one.__module__.partition(".")[0] not in ("torch", "builtins")]
    members = {name: value for one in own for name, value in vars(one).items()}
    pending, seen = ["forward"], set[Any]()
    for name in pending:
        function: Any = inspect.unwrap(kind.forward) if name == "forward" else members[name]
        text = "%s.%s" % (kind.__qualname__, name)
        if not isinstance(function, types.FunctionType):
            return "the code of %s is not known" % text
        why = reaches_outside(function, text, seen)
        if why is not None:
            return why
        for used in (used for code in _nested(function.__code__) for used in code.co_names):
            value = members.get(used)
            if isinstance(value, (list, dict, set)):
                return "%s uses %s, which all of its class share" % (text, used)
            if isinstance(value, types.FunctionType) and used not in pending:
                pending.append(used)
    return None


def _functions_reach_outside(part):
    """The same of functions that one module has as attributes, which a copy shares with it."""
    for name, value in vars(part).items():
        if isinstance(value, types.FunctionType) and value.__module__.partition(".")[0] != "torch":
            why = reaches_outside(value, "%s.%s" % (type(part).__qualname__, name))
            if why is not None:
                return why
    return None


def _tensors_of(module):
    """Identities of a module's parameters and buffers."""
    return set(map(id, (*torch.nn.Module.parameters(module), *torch.nn.Module.buffers(module))))


def reaches_outside(function, name, seen=None):
    """The same of the calls of a function with this name, and of functions that it calls."""
    seen = set() if seen is None else seen
    if function in seen:
        return None
    if len(seen) == _MOST_FUNCTIONS:
        return "%s is one of more functions than are looked at" % name
    seen.add(function)
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    if any(not isinstance(one, (*_CONSTANT, types.FunctionType, types.BuiltinFunctionType)) for one in defaults):
        return "%s has a default that is kept between calls" % name
    for code in _nested(function.__code__):
        written = sorted(_WRITE.intersection(code.co_names))
        if written:
            return "%s calls %s()" % (name, written[0])
        if code is function.__code__ and code.co_freevars != () and set(code.co_freevars) - {"__class__"}:
            return "%s uses variables of the function around it" % name
        operations = {instruction.opname for instruction in dis.get_instructions(code)}
        for instruction in dis.get_instructions(code):
            if instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                return "%s assigns to the global %s" % (name, instruction.argval)
            if instruction.opname == "LOAD_GLOBAL":
                value = function.__globals__.get(instruction.argval)
                if isinstance(value, type) and issubclass(value, torch.nn.Module) and _STORES & operations:
                    return "%s may change the class %s" % (name, instruction.argval)
                if isinstance(value, types.FunctionType) and is_user_file(value.__code__.co_filename):
                    why = reaches_outside(value, value.__qualname__, seen)
                    if why is not None:
                        return why
                if isinstance(value, torch.nn.Module) or not (isinstance(value, _CONSTANT) or callable(value)):
                    return "%s uses the global %s" % (name, instruction.argval)
    return None


def _nested(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def is_hooked(module):
    """True if hooks of the user's see a module's passes."""
    return module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks


def _with_gradients(output):
    found = [one for one in tensors_in(output) if one.requires_grad]
    if not found:
        raise NotDoubled("the model's output has no tensors with gradients")
    return found


def tensors_in(output):
    """The tensors in what a module gives or is given, also those in lists, tuples and dictionaries."""
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, dict):
        output = list(output.values())
    return [one for part in output for one in tensors_in(part)] if isinstance(output, (list, tuple)) else []
