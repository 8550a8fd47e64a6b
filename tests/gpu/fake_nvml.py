"""The C library below pynvml, for one GPU: pynvml's own Python runs, with its structures and its errors."""

from __future__ import annotations

import ctypes
from typing import Any

import pynvml
import pytest

MIB = 1 << 20
NUMBERS = {
    "nvmlDeviceGetCount_v2": (1,),
    "nvmlDeviceGetCudaComputeCapability": (8, 6),
    "nvmlDeviceGetCurrPcieLinkGeneration": (4,),
    "nvmlDeviceGetMaxPcieLinkGeneration": (4,),
    "nvmlDeviceGetCurrPcieLinkWidth": (8,),
    "nvmlDeviceGetMaxPcieLinkWidth": (16,),
    "nvmlDeviceGetEnforcedPowerLimit": (300_000,),
    "nvmlDeviceGetMaxClockInfo": (1710,),
    "nvmlDeviceGetClockInfo": (1500,),
    "nvmlDeviceGetPowerUsage": (211_500,),
    "nvmlDeviceGetTemperature": (61,),
    "nvmlDeviceGetCurrentClocksEventReasons": (0x44,),
    "nvmlDeviceGetCurrentClocksThrottleReasons": (0x44,),
}
TEXTS = {
    "nvmlSystemGetDriverVersion": b"580.65.06",
    "nvmlDeviceGetName": b"NVIDIA A10G",
    "nvmlDeviceGetUUID": b"GPU-0b7f2a5e-0000-4000-8000-00000000f1a7",
}
STRUCTURES = {
    "nvmlDeviceGetMemoryInfo": {"total": 24_000 * MIB, "free": 18_000 * MIB, "used": 6_000 * MIB},
    "nvmlDeviceGetUtilizationRates": {"gpu": 37, "memory": 12},
}
PROCESSES = ((4711, 5_000 * MIB), (4712, None))
LISTED = "nvmlDeviceGetComputeRunningProcesses_v3"
SILENT = ("nvmlInitWithFlags", "nvmlShutdown", "nvmlDeviceGetHandleByIndex_v2")


class FakeLibrary:
    """``libnvidia-ml.so.1``; a function that is not here is missing, as in an older driver.

    Args:
        unsupported: functions that this GPU does not support.
        missing: functions that this driver does not have.
    """

    def __init__(self, unsupported: tuple[str, ...] = (), missing: tuple[str, ...] = ()) -> None:
        self.calls: list[str] = []
        self._unsupported, self._missing = unsupported, missing

    def __getattr__(self, name: str) -> Any:
        known = name == LISTED or name in NUMBERS or name in TEXTS or name in STRUCTURES or name in SILENT
        if name.startswith("_") or name in self._missing or not (known or name in self._unsupported):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if name in self._unsupported:
                return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
            if name == LISTED:
                return _list_processes(*arguments)
            if name in TEXTS:
                next(arg for arg in arguments if isinstance(arg, ctypes.Array)).value = TEXTS[name]
            pointers = [arg._obj for arg in arguments if hasattr(arg, "_obj")]
            for pointer, number in zip(pointers, NUMBERS.get(name, ()), strict=False):
                pointer.value = number
            for field, number in STRUCTURES.get(name, {}).items():
                setattr(pointers[0], field, number)
            return int(pynvml.NVML_SUCCESS)

        return call


def _list_processes(handle: Any, count: Any, entries: Any) -> int:
    """As NVML does: a place that is too small is told how many there are."""
    room, count._obj.value = count._obj.value, len(PROCESSES)
    if room < len(PROCESSES):
        return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
    for entry, (pid, held) in zip(entries, PROCESSES, strict=False):
        entry.pid, entry.usedGpuMemory = pid, pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value if held is None else held
    return int(pynvml.NVML_SUCCESS)


def install(patch: pytest.MonkeyPatch, library: FakeLibrary) -> None:
    """Put the library below pynvml, until ``patch`` is undone."""
    patch.setattr(pynvml, "nvmlLib", library)
    patch.setattr(pynvml, "_nvmlLib_refcount", 0)
    patch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
