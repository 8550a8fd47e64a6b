"""The memory of a training step on patches, tracked on tensors without content: it takes no GPU and no memory."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from flatout.predict.step_memory import Tracked
from flatout.probe.tracked_peak import tracked_peak
from flatout.segmentation.loss import SegmentationLoss
from flatout.segmentation.networks import Size

IGNORE = 255


def tracked_step(
    model: nn.Module, classes: int, patch: Size, batch_size: int, *, half: bool, adaptive: bool = False
) -> Tracked:
    """The second step of a training, when the optimizer has its state.

    Args:
        model: on the CPU; it is copied without its content.
        classes: of its output.
        patch: voxels (z, y, x).
        batch_size: patches.
        half: the passes run in 16 bits where autocast has it so.
        adaptive: the optimizer keeps two moments of each weight, not one.
    """
    mode = FakeTensorMode()
    with FakeCopyMode(mode):
        fake = copy.deepcopy(model).train()
    with mode:
        optimizer: torch.optim.Optimizer
        if adaptive:
            optimizer = torch.optim.AdamW(fake.parameters(), lr=1e-3, foreach=False)
        else:
            optimizer = torch.optim.SGD(fake.parameters(), lr=1e-2, momentum=0.99, foreach=False)
        images = torch.randn(batch_size, 1, *patch).contiguous(memory_format=torch.channels_last_3d)
        labels = torch.zeros(batch_size, *patch, dtype=torch.uint8)
        _passes(fake, optimizer, images, labels, half)
        optimizer.step()
        tracker = MemTracker()
        tracker.track_external(fake, optimizer)
        with tracker:
            _passes(fake, optimizer, images, labels, half)
            passes = tracked_peak(tracker)
            optimizer.step()
        whole = sum(tracked_peak(tracker).values())
    return Tracked(batch_size, passes, whole)


def _passes(model: nn.Module, optimizer: Any, images: torch.Tensor, labels: torch.Tensor, half: bool) -> None:
    optimizer.zero_grad()
    criterion = SegmentationLoss(IGNORE)
    with torch.autocast("cpu", torch.bfloat16) if half else nullcontext():
        criterion(model(images), labels).backward()
