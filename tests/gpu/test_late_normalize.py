"""Pictures that are copied to a GPU as uint8, and made floats there."""

from __future__ import annotations

import pytest
import torch
from torchvision.transforms import Normalize

from flatout.probe import unconverted
from flatout.probe.injections.late_normalize import _scaled
from flatout.probe.unconverted import Unconverted
from tests.gpu.fake_gpu import FakeGpu

NORMALIZE = Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.2))


@pytest.fixture(autouse=True)
def not_compared_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unconverted, "same_on", {})


def reaches_the_gpu() -> None:
    pixels = torch.arange(4 * 3 * 8 * 8).remainder(256).to(torch.uint8).reshape(4, 3, 8, 8)
    floats = NORMALIZE(pixels.to(torch.float32).div(255))  # as ToTensor makes them on the CPU
    reached = []

    def noted(given: torch.Tensor) -> torch.Tensor:
        reached.append((given.is_cuda, given.dtype))
        return _scaled(given)

    batch = torch.stack([Unconverted(one, parts) for parts in [(noted, NORMALIZE)] for one in pixels])
    for copied in (batch.to("cuda", non_blocking=True), batch.cuda(), batch.to(torch.device("cuda:0"))):
        assert type(copied) is type(floats.to("cuda")) and copied.is_cuda and copied.dtype == torch.float32
        assert torch.equal(copied.cpu(), floats)
    last = batch.to("cuda", memory_format=torch.channels_last)
    assert last.is_contiguous(memory_format=torch.channels_last) and torch.equal(last.cpu(), floats)
    on_cpu = (False, torch.uint8)  # the first batch is compared
    assert reached == [(True, torch.uint8), on_cpu, *[(True, torch.uint8)] * 3]
    assert unconverted.same_on == {"cuda": True}


def test_a_gpu_that_makes_other_floats_gets_those_of_the_cpu(fake: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(given: torch.Tensor) -> torch.Tensor:
        return _scaled(given) * (1 + 1e-6 * given.is_cuda)

    refused: list[str] = []
    monkeypatch.setattr(unconverted, "differs", refused.append)
    pixels = torch.randint(0, 256, (4, 3, 8, 6), dtype=torch.uint8)
    for _ in range(2):
        copied = Unconverted(pixels, (other,)).to("cuda")
        assert copied.is_cuda and torch.equal(copied.cpu(), pixels.to(torch.float32).div(255))
    assert refused == ["cuda"]


def test_the_fake_gpu_gets_uint8(fake: FakeGpu) -> None:
    reaches_the_gpu()


@pytest.mark.gpu
def test_the_gpu_gets_uint8_also_from_pinned_memory() -> None:
    reaches_the_gpu()
    batch = Unconverted(torch.zeros(2, 3, 4, 4, dtype=torch.uint8), (_scaled,)).pin_memory()
    assert type(batch) is Unconverted and batch.is_pinned() and batch.to("cuda", non_blocking=True).is_cuda
