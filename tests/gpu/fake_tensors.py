"""Tensors that lie on the fake GPU: ordinary ones whose storage carries a mark, which every operation hands on.

Values, gradients and dtypes are real. ``device``, ``is_cuda`` and ``is_cpu`` say where a tensor would lie, tensors of
both places do not mix, and reading one on the GPU waits for the device.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchvision.io
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torchvision.io import ImageReadMode

from tests.gpu.fake_gpu import FakeGpu

CUDA = torch.device("cuda", 0)
DLPACK_CUDA = 2
ON, PINNED = "_flatout_on_gpu", "_flatout_pinned"
FACTORIES = (
    "arange", "as_tensor", "empty", "empty_like", "eye", "full", "full_like", "linspace", "ones", "ones_like", "rand",
    "rand_like", "randint", "randn", "randn_like", "randperm", "scalar_tensor", "tensor", "zeros", "zeros_like",
)  # fmt: skip
METHODS = ("new_empty", "new_full", "new_ones", "new_tensor", "new_zeros")
# They take tensors of both places: copies, and indices.
MIXING = ("aten::copy_", "aten::index", "aten::index_put_", "aten::_index_put_impl_", "aten::set_")


def on_gpu(tensor: Tensor) -> bool:
    """Whether it lies on the fake GPU."""
    return _place(tensor) is True


def _place(tensor: Tensor) -> bool | None:
    """On the GPU, or not; None: made by C++ in the place of another tensor, which shows when the two are used."""
    try:
        return getattr(tensor.untyped_storage(), ON, False)
    except (NotImplementedError, RuntimeError):  # no storage of its own: sparse, or a tensor of another mode
        return False


class FakeTensors(TorchDispatchMode):
    """Hands the marks on."""

    def __init__(self, gpu: FakeGpu, op_ns: int = 0) -> None:
        """``op_ns``: what every operation takes on the device; the host goes on meanwhile."""
        super().__init__()
        self.gpu, self.op_ns = gpu, op_ns

    def place(self, tensor: Tensor) -> Tensor:
        """Mark a tensor as lying on the GPU."""
        storage = tensor.untyped_storage()
        if not getattr(storage, ON, False):
            torch.cuda._lazy_init()  # as torch does before the first tensor
            size = storage.nbytes()
            self.gpu.allocate(size)
            setattr(storage, ON, True)
            weakref.finalize(storage, self.gpu.free, size)
        return tensor

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [leaf for leaf in tree_leaves((args, kwargs or {})) if isinstance(leaf, Tensor)]
        there = [tensor for tensor in given if on_gpu(tensor)]
        name = func._schema.name
        if there and name not in MIXING and any(tensor.dim() and _place(tensor) is False for tensor in given):
            raise RuntimeError(f"Expected all tensors to be on the same device, but found cuda:0 and cpu ({name})")
        if there:
            for tensor in given:
                if _place(tensor) is None:
                    self.place(tensor)
        if there and name in ("aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::masked_select"):
            self.gpu.wait()
        result = func(*args, **(kwargs or {}))
        if there:
            self.gpu.queue(self.op_ns)
        if there and name != "aten::copy_":
            for tensor in tree_leaves(result):
                if isinstance(tensor, Tensor):
                    self.place(tensor)
        elif all(_place(tensor) is None for tensor in given):
            for tensor in tree_leaves(result):
                if isinstance(tensor, Tensor):
                    setattr(tensor.untyped_storage(), ON, None)
        return result


def _below(patch: pytest.MonkeyPatch, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace a function below all wrappers that were put around it, such as the probe's."""
    held, function = None, getattr(owner, name)
    while (inner := getattr(function, "__wrapped__", None)) is not None:
        cells = [cell for cell in function.__closure__ or () if cell.cell_contents is inner]
        if not cells:
            break
        held, function = cells[0], inner
    made = make(function)
    if held is None:
        patch.setattr(owner, name, made)
    else:
        patch.setattr(held, "cell_contents", made)


def install(patch: pytest.MonkeyPatch, gpu: FakeGpu, op_ns: int = 0) -> FakeTensors:
    """Make torch put tensors on the fake GPU, until ``patch`` is undone; the result is entered as a context."""
    mode = FakeTensors(gpu, op_ns)
    base = torch._C.TensorBase
    device, is_cpu = base.device, base.is_cpu
    patch.setattr(Tensor, "device", property(lambda self: CUDA if on_gpu(self) else device.__get__(self)))
    patch.setattr(Tensor, "is_cuda", property(on_gpu))
    patch.setattr(Tensor, "is_cpu", property(lambda self: not on_gpu(self) and is_cpu.__get__(self)))
    for name in FACTORIES:
        _below(patch, torch, name, functools.partial(_factory, mode))
    for name in METHODS:
        _below(patch, Tensor, name, functools.partial(_factory, mode))
    _below(patch, Tensor, "to", functools.partial(_to, mode))
    _below(patch, Tensor, "cuda", lambda original: _bound(original, lambda self, *a, **k: _moved(mode, self, CUDA)))
    _below(patch, Tensor, "cpu", lambda original: _bound(original, lambda self, *a, **k: _moved(mode, self, _CPU)))
    _below(patch, Tensor, "pin_memory", lambda original: _bound(original, _pin))
    _below(patch, Tensor, "is_pinned", lambda original: _bound(original, _is_pinned))
    for name in ("numpy", "tolist"):
        _below(patch, Tensor, name, functools.partial(_read, gpu, name))
    _below(patch, torch, "from_dlpack", functools.partial(_from_dlpack, mode))
    _below(patch, torch.autocast, "__init__", _autocast)
    real = torchvision.io.decode_jpeg
    patch.setattr(torchvision.io, "decode_jpeg", functools.partial(_decode_jpeg, real))
    return mode


_CPU = torch.device("cpu")


def _bound(original: Any, made: Callable[..., Any]) -> Callable[..., Any]:
    """A method: of a class that overrides torch's functions, it asks the class, as those of C do."""

    @functools.wraps(original, updated=())
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if has_torch_function((self,)):
            return handle_torch_function(getattr(Tensor, original.__name__), (self,), self, *args, **kwargs)
        return made(self, *args, **kwargs)

    return method


def _factory(mode: FakeTensors, original: Any) -> Callable[..., Any]:
    @functools.wraps(original, updated=())
    def factory(*args: Any, **kwargs: Any) -> Tensor:
        device = kwargs.pop("device", None)
        like = next((arg for arg in args[:1] if isinstance(arg, Tensor)), None)
        pinned = kwargs.pop("pin_memory", False)
        made: Tensor = original(*args, **kwargs)
        if device is not None and torch.device(device).type not in ("cuda", "cpu"):
            return original(*args, **kwargs, device=device)
        wanted = torch.device(device).type == "cuda" if device is not None else like is not None and on_gpu(like)
        if like is not None and wanted != on_gpu(made):
            made = made.detach().clone()
        if wanted:
            mode.place(made)
        elif not on_gpu(made):
            setattr(made.untyped_storage(), ON, False)
        if pinned:
            setattr(made.untyped_storage(), PINNED, True)
        return made

    return factory


def _from_dlpack(mode: FakeTensors, original: Any) -> Callable[..., Any]:
    @functools.wraps(original)
    def from_dlpack(ext_tensor: Any, **kwargs: Any) -> Tensor:
        made: Tensor = original(ext_tensor, **kwargs)
        return mode.place(made) if int(ext_tensor.__dlpack_device__()[0]) == DLPACK_CUDA else made

    return from_dlpack


def _to(mode: FakeTensors, original: Any) -> Callable[..., Any]:
    def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        # torch's own parser says what was meant, and refuses what it would refuse.
        device, dtype, _, memory_format = torch._C._nn._parse_to(
            *((args[0].device, args[0].dtype, *args[1:]) if args and isinstance(args[0], Tensor) else args),
            **{name: value for name, value in kwargs.items() if name != "copy"},
        )
        moved = _moved(mode, self, device) if device is not None else self
        rest = {"dtype": dtype} if dtype is not None else {}
        if memory_format is not None:
            rest["memory_format"] = memory_format
        if kwargs.get("copy") and moved is self:
            rest["copy"] = True
        return original(moved, **{"dtype": moved.dtype, **rest}) if rest else moved

    return _bound(original, to)


def _moved(mode: FakeTensors, tensor: Tensor, device: torch.device) -> Tensor:
    if (device.type == "cuda") == on_gpu(tensor):
        return tensor
    if device.type == "cuda":
        return mode.place(tensor.clone())
    mode.gpu.wait()
    copied = _Back.apply(tensor)
    assert isinstance(copied, Tensor)
    return copied


class _Back(torch.autograd.Function):
    """A copy in host memory: made without the operations that hand the mark on."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        copied = torch.empty(tensor.shape, dtype=tensor.dtype)
        return copied.copy_(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.to("cuda")


def _pin(self: Tensor, device: Any = None) -> Tensor:
    assert not on_gpu(self), "cannot pin 'torch.cuda.FloatTensor': only dense CPU tensors can be pinned"
    copied = self.clone()
    setattr(copied.untyped_storage(), PINNED, True)
    return copied


def _is_pinned(self: Tensor, device: Any = None) -> bool:
    return bool(getattr(self.untyped_storage(), PINNED, False))


def _decode_jpeg(
    real: Any,
    input: Tensor,
    mode: Any = ImageReadMode.UNCHANGED,
    device: Any = "cpu",
    apply_exif_orientation: bool = False,
) -> Tensor:
    """nvJPEG: takes bytes in host memory, and leaves pixels on the GPU."""
    assert not on_gpu(input) and input.dtype == torch.uint8 and input.dim() == 1
    made: Tensor = real(input, mode, apply_exif_orientation=apply_exif_orientation)
    return made.to(device)


def _read(gpu: FakeGpu, name: str, original: Any) -> Callable[..., Any]:
    @functools.wraps(original, updated=())
    def read(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if on_gpu(self):
            if name == "numpy":
                raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")
            gpu.wait()
        return original(self, *args, **kwargs)

    return read


def _autocast(original: Any) -> Callable[..., None]:
    """Checked as one for CUDA, carried out by the CPU's: the tensors below are the CPU's."""

    @functools.wraps(original)
    def __init__(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        original(self, device_type, *args, **kwargs)
        if self.device == "cuda":
            self.device = "cpu"

    return __init__
