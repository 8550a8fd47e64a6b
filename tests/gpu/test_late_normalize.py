"""Pictures that are copied to a GPU as uint8, and made floats there."""

from __future__ import annotations

import pytest
import torch
from torchvision.transforms import Normalize

from flatout.probe.unconverted import Unconverted
from tests.gpu.fake_gpu import FakeGpu

NORMALIZE = Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.2))


def scaled(pixels: torch.Tensor) -> torch.Tensor:
    return pixels.to(torch.float32).div(255)


def reaches_the_gpu() -> None:
    pixels = torch.randint(0, 256, (4, 3, 8, 6), dtype=torch.uint8)
    floats = NORMALIZE(scaled(pixels))
    reached = []

    def noted(given: torch.Tensor) -> torch.Tensor:
        reached.append((given.is_cuda, given.dtype))
        return scaled(given)

    batch = torch.stack([Unconverted(one, parts) for parts in [(noted, NORMALIZE)] for one in pixels])
    for copied in (batch.to("cuda", non_blocking=True), batch.cuda(), batch.to(torch.device("cuda:0"))):
        assert type(copied) is type(floats.to("cuda")) and copied.is_cuda and copied.dtype == torch.float32
        assert torch.equal(copied.cpu(), floats)
    last = batch.to("cuda", memory_format=torch.channels_last)
    assert last.is_contiguous(memory_format=torch.channels_last) and torch.equal(last.cpu(), floats)
    assert reached == [(True, torch.uint8)] * 4


def test_the_fake_gpu_gets_uint8(fake: FakeGpu) -> None:
    reaches_the_gpu()


@pytest.mark.gpu
def test_the_gpu_gets_uint8_also_from_pinned_memory() -> None:
    reaches_the_gpu()
    batch = Unconverted(torch.zeros(2, 3, 4, 4, dtype=torch.uint8), (scaled,)).pin_memory()
    assert type(batch) is Unconverted and batch.is_pinned() and batch.to("cuda", non_blocking=True).is_cuda
