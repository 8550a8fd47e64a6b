"""One step of timm's training benchmark on tensors without content, tracked as ``flatout memory`` tracks a step.

Memory depends on shapes and types alone: with fake tensors a step at any batch size takes neither the GPU nor its
memory. CUDA's autocast is imitated on fake tensors of the CPU: of the operators that CUDA keeps in float32, those that
hold memory (normalisation of layers and groups, softmax) are given float32 by hand.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from flatout.predict.step_memory import Tracked
from flatout.probe.tracked_peak import tracked_peak

KEPT_IN_FLOAT32 = ((F, "layer_norm"), (F, "group_norm"), (F, "softmax"), (torch, "softmax"), (torch.Tensor, "softmax"))


@contextmanager
def cuda_autocast() -> Iterator[None]:
    """Float16 where CUDA's autocast has it."""
    originals = [(holder, name, getattr(holder, name)) for holder, name in KEPT_IN_FLOAT32]

    def in_float32(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda tensor, *args, **kwargs: original(tensor.float(), *args, **kwargs)

    for holder, name, original in originals:
        setattr(holder, name, in_float32(original))
    try:
        with torch.autocast("cpu", torch.float16):
            yield
    finally:
        for holder, name, original in originals:
            setattr(holder, name, original)


def tracked_step(model: nn.Module, batch_size: int, edge: int) -> Tracked:
    """The second step of SGD with momentum under AMP, as timm's benchmark.py makes it.

    Args:
        model: on the CPU; it is copied without its content.
        batch_size: images.
        edge: of an image, pixels.
    """
    mode = FakeTensorMode()
    with FakeCopyMode(mode):
        fake = copy.deepcopy(model)
    with mode:
        optimizer = torch.optim.SGD(fake.parameters(), lr=1e-4, momentum=0.9, nesterov=True, foreach=False)
        images = torch.randn(batch_size, 3, edge, edge)
        _forward_backward(fake, optimizer, images)
        optimizer.step()
        tracker = MemTracker()
        tracker.track_external(fake, optimizer)
        with tracker:
            forward = _forward_backward(fake, optimizer, images, tracker)
            passes = tracked_peak(tracker)
            optimizer.step()
        whole = sum(tracked_peak(tracker).values())
    return Tracked(batch_size, passes, whole, forward)


def _forward_backward(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor, tracker: MemTracker | None = None
) -> int:
    """Both passes; returns the peak until the model returned, bytes."""
    optimizer.zero_grad()
    with cuda_autocast():
        output = model(images)
        forward = sum(tracked_peak(tracker).values()) if tracker else 0
        output = output[0] if isinstance(output, tuple) else output
        target = torch.zeros(len(images), dtype=torch.long)
        F.cross_entropy(output.float(), target).backward()
    return forward
