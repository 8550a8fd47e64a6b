"""NVIDIA GPUs through NVML. Values that the driver does not report stay None.

NVML is a parameter everywhere, so that it can be replaced where there is no GPU.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Bits of the clock event (throttle) reasons, as in nvml.h.
_REASONS = {
    0x1: "idle",
    0x2: "clocks set by an application",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clock setting",
}
_CLOCK_SM, _CLOCK_MEMORY = 1, 2
_TEMPERATURE_GPU = 0
_MOST_PROCESSES = 64


@dataclass(frozen=True)
class Gpu:
    """One GPU. MIG slices are named as the driver names them."""

    index: int
    name: str | None
    uuid: str | None
    memory_bytes: int | None
    driver: str | None
    compute_capability: str | None
    pcie_generation: int | None  # as linked now; an idle GPU can link at a lower one
    pcie_generation_max: int | None
    pcie_width: int | None  # lanes
    pcie_width_max: int | None
    power_limit_w: float | None
    sm_clock_max_mhz: int | None
    memory_clock_max_mhz: int | None
    mig: bool | None
    mig_devices: tuple[str, ...] | None


class Nvml:
    """An initialised NVML, or the reason why it is unavailable.

    Args:
        module: The ``pynvml`` module, started or not; None: look for the installed one.
    """

    def __init__(self, module: Any = None) -> None:
        self.because: str | None = None
        self._module: Any = module
        self._handles: list[Any] = []
        try:
            if self._module is None:
                self._module = importlib.import_module("pynvml")
            self._module.nvmlInit()
            count = self._module.nvmlDeviceGetCount()
            self._handles = [self._module.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        except ImportError:
            self.because = "nvidia-ml-py is not installed; pip install nvidia-ml-py"
        except Exception as error:  # NVML's errors are made at run time and share no importable base
            self.because = f"NVML: {error}"

    # untested: needs a GPU
    def __len__(self) -> int:
        return len(self._handles)

    def close(self) -> None:
        """Shut NVML down. Safe to call twice."""
        if self.because is None:
            self._ask("nvmlShutdown")
        self._handles = []
        self.because = self.because or "closed"

    def _ask(self, function: str, *arguments: Any) -> Any:
        """Call NVML; None when this GPU, driver or permission does not answer."""
        try:
            return getattr(self._module, function)(*arguments)
        except Exception:
            return None

    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs' fixed properties, which do not change during a run."""
        driver = _text(self._ask("nvmlSystemGetDriverVersion"))
        return tuple(self._gpu(index, handle, driver) for index, handle in enumerate(self._handles))

    def _gpu(self, index: int, handle: Any, driver: str | None) -> Gpu:
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        capability = self._ask("nvmlDeviceGetCudaComputeCapability", handle)
        mig_mode = self._ask("nvmlDeviceGetMigMode", handle)
        mig = bool(mig_mode[0]) if mig_mode else None
        return Gpu(
            index=index,
            name=_text(self._ask("nvmlDeviceGetName", handle)),
            uuid=_text(self._ask("nvmlDeviceGetUUID", handle)),
            memory_bytes=int(memory.total) if memory else None,
            driver=driver,
            compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
            pcie_generation=self._ask("nvmlDeviceGetCurrPcieLinkGeneration", handle),
            pcie_generation_max=self._ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
            pcie_width=self._ask("nvmlDeviceGetCurrPcieLinkWidth", handle),
            pcie_width_max=self._ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
            power_limit_w=_scaled(self._ask("nvmlDeviceGetEnforcedPowerLimit", handle), 1e-3),
            sm_clock_max_mhz=self._ask("nvmlDeviceGetMaxClockInfo", handle, _CLOCK_SM),
            memory_clock_max_mhz=self._ask("nvmlDeviceGetMaxClockInfo", handle, _CLOCK_MEMORY),
            mig=mig,
            mig_devices=self._mig_devices(handle) if mig else None,
        )

    def _mig_devices(self, handle: Any) -> tuple[str, ...]:
        names = []
        for slot in range(self._ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
            device = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, slot)
            name = _text(self._ask("nvmlDeviceGetName", device)) if device is not None else None
            if name:
                names.append(name)
        return tuple(names)

    def sample(self) -> list[dict[str, Any]]:
        """The values that change during a run, one entry per GPU, as in ``gpus`` of system.jsonl."""
        return [self._sample(index, handle) for index, handle in enumerate(self._handles)]

    def _sample(self, index: int, handle: Any) -> dict[str, Any]:
        utilisation = self._ask("nvmlDeviceGetUtilizationRates", handle)
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if bits is None:  # the name of the same call before driver 535
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return {
            "index": index,
            "util": utilisation.gpu / 100 if utilisation else None,
            "memory_used": int(memory.used) if memory else None,
            "memory_total": int(memory.total) if memory else None,
            "power_w": _scaled(self._ask("nvmlDeviceGetPowerUsage", handle), 1e-3),
            "sm_mhz": self._ask("nvmlDeviceGetClockInfo", handle, _CLOCK_SM),
            "temperature": self._ask("nvmlDeviceGetTemperature", handle, _TEMPERATURE_GPU),
            "processes": self._processes(handle),
            "throttle": None if bits is None else throttle_reasons(bits),
        }

    def _processes(self, handle: Any) -> list[list[int]] | None:
        """Pairs of a process that computes on the GPU and the bytes that it holds there, as the driver numbers them."""
        found = self._ask("nvmlDeviceGetComputeRunningProcesses", handle)
        if found is None:
            return None
        return [[int(one.pid), int(one.usedGpuMemory or 0)] for one in found[:_MOST_PROCESSES]]


def throttle_reasons(bits: int) -> list[str]:
    """Names of the set bits; an unknown bit is shown as its number."""
    names = []
    for shift in range(int(bits).bit_length()):
        bit = 1 << shift
        if bits & bit:
            names.append(_REASONS.get(bit, hex(bit)))
    return names


def _text(value: Any) -> str | None:
    """Older versions of the library answer in bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _scaled(value: Any, factor: float) -> float | None:
    return None if value is None else float(value) * factor


def read_gpus(root: Path, start: Callable[[], Nvml] = Nvml) -> tuple[tuple[Gpu, ...] | None, dict[str, str]]:
    """The machine's GPUs.

    Returns:
        The GPUs: empty if the machine has none, None (with the reason) if there is one that could not be read.
    """
    nvml = start()
    try:
        if nvml.because is None:
            return nvml.gpus(), {}
        devices = gpu_devices(root)
        if not devices:
            return (), {}
        return None, {"gpus": f"{', '.join(devices)} is there, but {nvml.because}"}
    finally:
        nvml.close()


def gpu_devices(root: Path) -> list[str]:
    """Device files that betray a GPU to compute on, also one that NVML does not know (AMD's kfd)."""
    try:
        names = os.listdir(root / "dev")
    except OSError:
        return []
    nvidia = [name for name in names if name.startswith("nvidia") and name[6:].isdigit()]
    return [f"/dev/{name}" for name in sorted(nvidia + [name for name in names if name in ("kfd", "dxg")])]
