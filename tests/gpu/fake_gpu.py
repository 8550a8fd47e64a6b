"""A GPU made of a clock and a counter of bytes, put below torch.cuda: its C functions are replaced, its Python stays.

So an unknown name, a wrong argument or a wrong order of calls fails as on a real GPU, and every C function that is not
replaced here fails with its name. Tensors are kept apart in ``fake_tensors``, NVML in ``fake_nvml``.
"""

from __future__ import annotations

import inspect
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.cuda

TOTAL_BYTES = 16 << 30
CYCLES_A_NS = 1  # of torch.cuda._sleep


class FakeGpu:
    """The device: work queues up, and the host waits for it only where it asks to.

    Attributes:
        now_ns: the host's clock.
        busy_until_ns: when the work that was queued so far is done, on the host's clock.
        waits: how often the host waited for the device.
        allocated: bytes of tensors that are on the device.
        peak: the most of them since the last reset.
        out_of_memory_at: bytes from which an allocation fails; None: it never does.
    """

    name = "Fake A10G"
    capability = (8, 6)
    uuid = "0b7f2a5e-0000-4000-8000-00000000f1a7"

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns, sleep_ns: Callable[[int], None] | None = None):
        self.now_ns = now_ns
        self._sleep_ns = sleep_ns or (lambda ns: time.sleep(ns / 1e9))
        self.busy_until_ns = 0
        self.waits = 0
        self.capturing = False
        self.allocated = self.peak = 0
        self.out_of_memory_at: int | None = None

    def queue(self, ns: int) -> None:
        """Give the device work."""
        self.busy_until_ns = max(self.now_ns(), self.busy_until_ns) + ns

    def wait(self) -> None:
        """Wait until it has done all its work."""
        self.waits += 1
        left = self.busy_until_ns - self.now_ns()
        if left > 0:
            self._sleep_ns(left)

    def allocate(self, size: int) -> None:
        """Take memory.

        Raises:
            torch.OutOfMemoryError: there is not so much.
        """
        if self.out_of_memory_at is not None and self.allocated + size > self.out_of_memory_at:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes.")
        self.allocated += size
        self.peak = max(self.peak, self.allocated)

    def free(self, size: int) -> None:
        """Give it back."""
        self.allocated -= size


def event_class(gpu: FakeGpu) -> type:
    """The class that stands for torch.cuda.Event."""

    class Event:
        def __init__(
            self,
            enable_timing: bool = False,
            blocking: bool = False,
            interprocess: bool = False,
            external: bool = False,
        ) -> None:
            self._timing = enable_timing
            self._at_ns: int | None = None

        def record(self, stream: Any = None) -> None:
            self._at_ns = max(gpu.now_ns(), gpu.busy_until_ns)

        def query(self) -> bool:
            return self._at_ns is None or gpu.now_ns() >= self._at_ns

        def wait(self, stream: Any = None) -> None:
            """There is one stream."""

        def synchronize(self) -> None:
            if not self.query():
                gpu.wait()

        def elapsed_time(self, end_event: Event) -> float:
            if not (self._timing and end_event._timing):
                raise ValueError("Both events must be created with argument 'enable_timing=True'.")
            if self._at_ns is None or end_event._at_ns is None:
                raise ValueError("Both events must be recorded before calculating elapsed time.")
            if not (self.query() and end_event.query()):
                raise RuntimeError("CUDA error: device not ready")
            return (end_event._at_ns - self._at_ns) / 1e6

    return Event


def _stream_class(gpu: FakeGpu) -> type:
    class Stream:
        """The only stream there is."""

        device = torch.device("cuda", 0)
        device_index, stream_id, cuda_stream = 0, 0, 0

        def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None: ...

        def synchronize(self) -> None:
            gpu.wait()

        def wait_stream(self, stream: Any) -> None: ...

        def wait_event(self, event: Any) -> None: ...

        def record_event(self, event: Any = None) -> Any:
            event = event or torch.cuda.Event()
            event.record(self)
            return event

    return Stream


def _c_functions(gpu: FakeGpu) -> dict[str, Any]:
    """The functions of ``torch._C`` that stand for the driver and the allocator."""

    def init() -> None:
        torch.cuda.default_generators = (torch.Generator(),)

    def stats(device: int) -> dict[str, Any]:
        one = {"current": gpu.allocated, "peak": gpu.peak, "allocated": gpu.peak, "freed": 0}
        return {name: {"all": dict(one)} for name in ("allocated_bytes", "reserved_bytes", "active_bytes")}

    def reset(device: int) -> None:
        gpu.peak = gpu.allocated

    return {
        "_cuda_init": init,
        "_cuda_getDeviceCount": lambda: 1,
        "_cuda_getDevice": lambda: 0,
        "_cuda_setDevice": lambda device: None,
        "_cuda_exchangeDevice": lambda device: 0,
        "_cuda_maybeExchangeDevice": lambda device: 0,
        "_cuda_isInBadFork": lambda: False,
        "_cuda_getArchFlags": lambda: "sm_86",
        "_cuda_getCompiledVersion": lambda: 13020,
        "_cuda_synchronize": gpu.wait,
        "_cuda_sleep": lambda cycles: gpu.queue(cycles // CYCLES_A_NS),
        "_cuda_getCurrentStream": lambda device: (0, 0, 1),
        "_cuda_getDefaultStream": lambda device: (0, 0, 1),
        "_cuda_isCurrentStreamCapturing": lambda: gpu.capturing,
        "_cuda_memoryStats": stats,
        "_cuda_resetPeakMemoryStats": reset,
        "_cuda_resetAccumulatedMemoryStats": lambda device: None,
        "_cuda_emptyCache": lambda: None,
        "_cuda_hasPrimaryContext": lambda device: True,
        "_cuda_clearCublasWorkspaces": lambda: None,
        "_cuda_get_sync_debug_mode": lambda: 0,
        "_cuda_getAllocatorBackend": lambda: "native",
        "_accelerator_getDeviceIndex": lambda: 0,
        "_accelerator_getStream": lambda device: types.SimpleNamespace(is_capturing=lambda: gpu.capturing),
        "_accelerator_synchronizeDevice": lambda device: gpu.wait(),
        "_accelerator_emptyCache": lambda: None,
    }


def install(patch: pytest.MonkeyPatch, gpu: FakeGpu) -> None:
    """Put the device below torch.cuda, until ``patch`` is undone."""
    if not hasattr(torch._C, "_cuda_getDeviceCount"):
        pytest.skip("this torch was built without CUDA: its Python part has nothing to stand on")
    made = _c_functions(gpu)
    unknown = made.keys() - vars(torch._C).keys()
    assert not unknown, f"this torch has no {', '.join(sorted(unknown))}"
    homes = [torch._C, *(module for name, module in sys.modules.items() if name.split(".")[:2] == ["torch", "cuda"])]
    for name in [name for name in vars(torch._C) if name.startswith("_cuda_") or name in made]:
        real = getattr(torch._C, name)
        stand_in = made.get(name) or _missing(name)
        for home in homes:
            for attribute, value in list(vars(home).items()):
                if value is real:
                    patch.setattr(home, attribute, stand_in)
    properties = types.SimpleNamespace(
        name=gpu.name,
        major=gpu.capability[0],
        minor=gpu.capability[1],
        total_memory=TOTAL_BYTES,
        multi_processor_count=80,
        uuid=gpu.uuid,
        gcnArchName="",
        is_integrated=0,
        warp_size=32,
        max_threads_per_multi_processor=1536,
        regs_per_multiprocessor=65536,
        L2_cache_size=6 << 20,
    )
    lacking = [name for name in vars(properties) if not hasattr(torch._C._CudaDeviceProperties, name)]
    assert not lacking, f"the real properties have no {lacking}"
    patch.setattr(torch.cuda, "_get_device_properties", lambda device: properties, raising=False)
    patch.setattr(torch.cuda, "_initialized", False)
    patch.setattr(torch.cuda, "_cached_device_count", None)
    patch.setattr(torch.cuda, "_queued_calls", [])
    patch.setattr(torch.cuda, "default_generators", ())
    patch.setattr(torch.cuda, "_device_count_nvml", lambda: -1)
    event, stream = event_class(gpu), _stream_class(gpu)
    for made_class, real_class in ((event, torch.cuda.Event), (stream, torch.cuda.Stream)):
        check_like(made_class, real_class)
        for home in homes[1:]:
            for attribute, value in list(vars(home).items()):
                if value is real_class:
                    patch.setattr(home, attribute, made_class)


def check_like(made: type, real: type) -> None:
    """Fail where a stand-in takes or offers what the real class does not."""
    for name, value in vars(made).items():
        if name.startswith("_") and name != "__init__":
            continue
        assert name == "__init__" or hasattr(real, name), f"{real.__name__} has no {name}"
        theirs = getattr(real, "__new__" if name == "__init__" else name)
        if not inspect.isfunction(value) or not inspect.isfunction(theirs):
            continue
        ours, wanted = inspect.signature(value).parameters, inspect.signature(theirs).parameters
        assert list(ours)[1:] == list(wanted)[1:], f"{real.__name__}.{name}{tuple(wanted)}, not {tuple(ours)}"


def _missing(name: str) -> Callable[..., Any]:
    def missing(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError(f"torch._C.{name} is called, and the stand-in of the GPU does not have it")

    return missing
