"""NVML through pynvml's own functions, structures and errors; only the C library below them is a fake."""

from __future__ import annotations

import re
from pathlib import Path

import pynvml
import pytest

from flatout.machine import gpus
from flatout.machine.gpus import Nvml
from tests.gpu import fake_nvml


def test_every_name_that_is_asked_for_is_pynvmls() -> None:
    asked = set(re.findall(r'"(nvml[A-Z]\w+)"', Path(gpus.__file__).read_text("utf-8")))
    assert len(asked) > 15
    assert [name for name in sorted(asked) if not callable(getattr(pynvml, name, None))] == []
    assert (gpus._CLOCK_SM, gpus._CLOCK_MEMORY) == (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM)
    assert pynvml.NVML_TEMPERATURE_GPU == gpus._TEMPERATURE_GPU


def test_a_gpu_is_described_and_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    library = fake_nvml.FakeLibrary(unsupported=("nvmlDeviceGetMigMode",))
    fake_nvml.install(monkeypatch, library)
    nvml = Nvml()
    (gpu,) = nvml.gpus()
    assert (gpu.name, gpu.driver, gpu.compute_capability, gpu.mig) == ("NVIDIA A10G", "580.65.06", "8.6", None)
    assert (gpu.pcie_width, gpu.pcie_width_max, gpu.power_limit_w) == (8, 16, 300.0)
    (seen,) = nvml.sample()
    assert (seen["util"], seen["memory_used"], seen["power_w"]) == (0.37, 6_000 << 20, pytest.approx(211.5))
    assert seen["throttle"] == ["software power cap", "hardware thermal slowdown"]
    assert seen["processes"] == [[4711, 5_000 << 20], [4712, 0]]  # some drivers do not say how much
    nvml.close()
    assert library.calls[-1] == "nvmlShutdown"


def test_an_older_driver_is_asked_by_the_older_name(monkeypatch: pytest.MonkeyPatch) -> None:
    library = fake_nvml.FakeLibrary(missing=("nvmlDeviceGetCurrentClocksEventReasons",))
    fake_nvml.install(monkeypatch, library)
    nvml = Nvml()
    assert nvml.sample()[0]["throttle"] == ["software power cap", "hardware thermal slowdown"]
    assert "nvmlDeviceGetCurrentClocksThrottleReasons" in library.calls
    nvml.close()
