"""The fake GPU, for one test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from tests.gpu import fake_gpu, fake_nvml, fake_tensors


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[fake_gpu.FakeGpu]:
    """torch and NVML believe in a GPU."""
    gpu = fake_gpu.FakeGpu()
    fake_gpu.install(monkeypatch, gpu)
    fake_nvml.install(monkeypatch, fake_nvml.FakeLibrary())
    with fake_tensors.install(monkeypatch, gpu):
        yield gpu
