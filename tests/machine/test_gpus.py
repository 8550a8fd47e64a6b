from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flatout.machine.gpus import Nvml, read_gpus, throttle_reasons
from tests.machine.fake_root import write


class NotSupported(Exception):
    pass


class FakeNvml:
    """One A10G as an older library would describe it (names in bytes), and one MIG-split A100 that tells little."""

    def __init__(self) -> None:
        self.running = False

    def nvmlInit(self) -> None:
        self.running = True

    def nvmlShutdown(self) -> None:
        self.running = False

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return ("a10g", "a100")[index]

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"550.54.15"

    def nvmlDeviceGetName(self, handle: str) -> bytes | str:
        names: dict[str, bytes | str] = {
            "a10g": b"NVIDIA A10G",
            "a100": "NVIDIA A100-SXM4-80GB",
            "slice": "NVIDIA A100 MIG 3g.40gb",
        }
        return names[handle]

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        if handle == "a100":
            raise NotSupported("Insufficient Permissions")
        return SimpleNamespace(total=24 << 30, used=6 << 30, free=18 << 30)

    def nvmlDeviceGetMigMode(self, handle: str) -> tuple[int, int]:
        if handle == "a10g":
            raise NotSupported("Not Supported")
        return (1, 1)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:
        return 3

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, slot: int) -> str:
        if slot != 1:
            raise NotSupported("Not Found")
        return "slice"

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: str) -> int:
        return 4

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: str) -> int:
        return 16

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:
        return 300_000

    def nvmlDeviceGetMaxClockInfo(self, handle: str, clock: int) -> int:
        return {1: 1710, 2: 6251}[clock]

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        if handle == "a100":
            raise NotSupported("Not Supported")
        return SimpleNamespace(gpu=37, memory=12)

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return 211_500

    def nvmlDeviceGetClockInfo(self, handle: str, clock: int) -> int:
        return 1500

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return 61

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return 0x44


def test_gpus_are_described_and_nvml_is_given_back(tmp_path: Path) -> None:
    fake = FakeNvml()
    gpus, missing = read_gpus(tmp_path, lambda: Nvml(fake))
    assert gpus is not None
    first, second = gpus
    assert (first.name, first.driver, first.memory_bytes) == ("NVIDIA A10G", "550.54.15", 24 << 30)
    assert (first.pcie_generation, first.pcie_width, first.power_limit_w) == (4, 16, 300.0)
    assert (first.sm_clock_max_mhz, first.memory_clock_max_mhz) == (1710, 6251)
    assert (first.mig, first.mig_devices) == (None, None)
    assert (second.mig, second.mig_devices) == (True, ("NVIDIA A100 MIG 3g.40gb",))
    assert second.memory_bytes is None
    assert missing == {}
    assert not fake.running


def test_samples_hold_none_for_what_a_gpu_does_not_tell() -> None:
    nvml = Nvml(FakeNvml())
    first, second = nvml.sample()
    assert first == {
        "index": 0,
        "util": 0.37,
        "memory_used": 6 << 30,
        "memory_total": 24 << 30,
        "power_w": pytest.approx(211.5),
        "sm_mhz": 1500,
        "temperature": 61,
        "throttle": ["software power cap", "hardware thermal slowdown"],
        "processes": None,
    }
    assert (second["util"], second["memory_used"], second["memory_total"]) == (None, None, None)
    nvml.close()


def test_the_newer_name_of_the_throttle_query_is_preferred() -> None:
    class Newer(FakeNvml):
        def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> int:
            return 0

    nvml = Nvml(Newer())
    assert [gpu["throttle"] for gpu in nvml.sample()] == [[], []]
    nvml.close()


def test_throttle_reasons_show_unknown_bits_as_numbers() -> None:
    assert throttle_reasons(0x1 | 0x1000) == ["idle", "0x1000"]


class NoDriver(FakeNvml):
    def nvmlInit(self) -> None:
        raise NotSupported("NVML Shared Library Not Found")


def test_no_driver_and_no_device_file_is_a_machine_without_gpu(tmp_path: Path) -> None:
    assert read_gpus(write(tmp_path, {"dev/null": "", "dev/nvidiactl": ""}), lambda: Nvml(NoDriver())) == ((), {})


@pytest.mark.parametrize("device", ["nvidia0", "kfd"])
def test_a_gpu_that_cannot_be_read_is_not_measured_and_not_absent(tmp_path: Path, device: str) -> None:
    gpus, missing = read_gpus(write(tmp_path, {f"dev/{device}": ""}), lambda: Nvml(NoDriver()))
    assert gpus is None
    assert missing["gpus"] == f"/dev/{device} is there, but NVML: NVML Shared Library Not Found"


def test_closed_nvml_samples_nothing() -> None:
    nvml = Nvml(FakeNvml())
    nvml.close()
    nvml.close()
    assert (nvml.sample(), nvml.because) == ([], "closed")
