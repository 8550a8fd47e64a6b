"""Copies to the GPU that do not wait, from pinned memory: the order on the GPU's stream stays the same."""

import functools

from torch import Tensor


def install(injected, watch):
    """Patch ``Tensor.to`` and ``Tensor.cuda``; copies in any other direction stay as they are."""

    def patched(original):
        @functools.wraps(original)
        def copy(self, *args, **kwargs):
            if (
                injected.get("non_blocking")
                and not self.is_cuda
                and "non_blocking" not in kwargs
                and _to_gpu(original, args, kwargs)
                and _is_pinned(self)
            ):
                injected.done("non_blocking")
                kwargs["non_blocking"] = True
            return original(self, *args, **kwargs)

        return copy

    Tensor.to = patched(Tensor.to)
    Tensor.cuda = patched(Tensor.cuda)


def _is_pinned(tensor):
    try:
        return tensor.is_pinned()
    except RuntimeError:  # one that stands for many, as in torch.func.vmap
        return False


def _to_gpu(original, args, kwargs):
    if original.__name__ == "cuda":
        return len(args) < 2
    # ``to(device, dtype, non_blocking, copy)``: more than two by position may hold the flag already.
    target = args[0] if args else kwargs.get("device")
    return len(args) < 3 and str(target).startswith("cuda")
