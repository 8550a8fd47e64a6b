"""The model: memory format, autocast and compilation, applied when a training first calls it."""

import contextlib

import torch
from torch import is_grad_enabled

from . import gradient_scaling, outermost_calls

_changed: dict[int, bool] = {}  # id of a root module


def install(injected, watch):
    """Patch the call of a module: the outermost ones are models."""
    precision = injected.get("autocast")
    if precision and precision not in _DTYPES:
        injected.refuse("autocast", "%r is neither bf16 nor fp16" % (precision,))

    def answer(original, module, args, kwargs):
        weight = next(torch.nn.Module.parameters(module), None)
        if weight is None:  # a loss function, or a transform
            return original(module, *args, **kwargs)
        if id(module) not in _changed and is_grad_enabled():
            _changed[id(module)] = True
            _prepare(module, injected)
        if injected.get("channels_last"):
            args = tuple(_last(value) for value in args)
            kwargs = {name: _last(value) for name, value in kwargs.items()}
        dtype = _DTYPES.get(injected.get("autocast"))
        if dtype is None:
            return original(module, *args, **kwargs)
        with torch.autocast(weight.device.type, dtype=dtype):
            result = original(module, *args, **kwargs)
        injected.done("autocast")
        # The loss is computed in float32, as autocast would itself compute most losses.
        return _float32(result)

    outermost_calls.patch(answer)
    if precision == "fp16":
        gradient_scaling.install()


def _prepare(model, injected):
    if injected.get("channels_last"):
        kinds = {part.weight.dim() for part in model.modules() if isinstance(part, torch.nn.modules.conv._ConvNd)}
        formats = [_FORMATS[dims] for dims in (4, 5) if dims in kinds]
        for memory_format in formats:
            with contextlib.suppress(RuntimeError):  # weights of other dimensions
                model.to(memory_format=memory_format)
        if formats:
            injected.done("channels_last")
        else:
            injected.refuse("channels_last", "the model has no 2-D or 3-D convolution")
    mode = injected.get("compile")
    if mode:
        if not hasattr(model, "compile"):
            injected.refuse("compile", "this torch has no Module.compile: 2.2 or newer has")
        elif model._compiled_call_impl is not None or hasattr(model, "_orig_mod"):
            injected.refuse("compile", "the model is compiled already")
        else:
            model.compile(mode=None if mode == "default" else mode)
            injected.done("compile")


_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def _last(value):
    if isinstance(value, torch.Tensor) and value.dim() in _FORMATS:
        return value.contiguous(memory_format=_FORMATS[value.dim()])
    return value


def _float32(value):
    if isinstance(value, torch.Tensor):
        return value.float() if value.is_floating_point() else value
    if isinstance(value, dict):
        made = {name: _float32(part) for name, part in value.items()}
        if type(value) is dict:
            return made
        for name, part in made.items():  # a subclass of dict, such as the outputs of transformers
            value[name] = part
        return value
    if type(value) in (tuple, list):
        return type(value)(_float32(part) for part in value)
    return value
