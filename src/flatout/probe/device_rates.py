"""What this device gives: rates of a large product, a convolution and accesses to memory, measured after the trace.

They take some 0.5 s, with the threads and settings of the training, in the types in which its step computes.
"""

import collections
import itertools
import time
from typing import Any

import torch

from .contract import TF32
from .memory_room import available_bytes
from .recorder import REC

BUDGET_S = 0.06  # for the calls of one size; memory gets less
MEMORY_BUDGET_S = 0.03
LEAST_CALLS, MOST_CALLS = 3, 6
LONG_S = 0.01  # a call that takes this long is large enough
FIRST_SIDE = 128  # of square matrices
MOST_TYPES = 2
CHANNELS, SIDE, KERNEL = 64, 56, 3  # of a convolution in the middle of a common network
FIRST_IMAGES, MOST_IMAGES = 4, 256
# Bytes in memory: from what fits a core's own cache to more than most caches hold.
_ON_CPU = (1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26)
_ON_GPU = (1 << 24, 1 << 26, 1 << 28)  # a smaller one takes less time than its launch
_AT_A_TIME = 1 << 24  # bytes of one timed call, in several passes where the memory is smaller
SPARED = 16  # of the memory that is left, at most one part in so many is taken
_DTYPES = {"float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16"}
_PRODUCT = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::mkldnn_rnn_layer", "aten::_cudnn_rnn")
_ATTENTION = "aten::_scaled_dot_product_"
_CONVOLUTION = "aten::convolution"
_BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}  # of x86, and of Arm
_CPU_LINES = 64  # of /proc/cpuinfo, which hold all about the first core


@torch.no_grad()
def measure(profiler):
    """The rates, as the record shows them.

    Args:
        profiler: that has taken the trace: it knows the types of the step's operators.
    """
    products, convolutions, on_gpu = types_used(profiler.profiler.kineto_results.events())
    device = "cuda" if on_gpu else "cpu"
    ranks = REC.process.get("world_size") or 1
    if ranks > 1 and not on_gpu:
        return {"failed": "%d ranks share the cores" % ranks}
    timed = timer(device)
    others = _other_formats(products, on_gpu)
    with torch.autocast(device, enabled=False):
        cpu_ns, wall_ns = time.process_time_ns(), time.perf_counter_ns()
        product_flops = {name: _product_flops(getattr(torch, name), device, timed) for name in products}
        cpu_ns, wall_ns = time.process_time_ns() - cpu_ns, time.perf_counter_ns() - wall_ns
        found = {
            "device": device,
            "threads": torch.get_num_threads(),
            "product_flops": product_flops,
            "convolution_flops": {
                name: _convolution_flops(getattr(torch, name), device, timed)
                for name in (*convolutions, *(others if convolutions else ()))
            },
            "memory_bps": memory_bps(_ON_GPU if on_gpu else _ON_CPU, device, timed),
        }
        product_flops.update({name: _product_flops(getattr(torch, name), device, timed) for name in others})
        if others and on_gpu:
            rate = _tf32_flops(device, timed) if torch.cuda.get_device_capability() >= (8, 0) else None
            product_flops.update({TF32: rate} if rate else {})
    if products and not on_gpu:
        found["cores"] = cpu_ns / wall_ns
    return found


def _other_formats(products, on_gpu):
    """The 16-bit type that a step in float32 might use instead, if tensor cores or the CPU's instructions have one."""
    if "float32" not in products:
        return ()
    if on_gpu:
        capability = torch.cuda.get_device_capability()
        kind = "bfloat16" if capability >= (8, 0) else "float16" if capability >= (7, 0) else ""
    else:
        kind = "bfloat16" if _multiplies_bfloat16() else ""
    return () if not kind or kind in products else (kind,)


def _multiplies_bfloat16():
    """True if the CPU has instructions for it: without them, products take many times as long."""
    try:
        with open("/proc/cpuinfo") as file:
            return any(not _BFLOAT16.isdisjoint(line.split()) for line in itertools.islice(file, _CPU_LINES))
    except OSError:
        return False


def _tf32_flops(device, timed):
    """The rate in TF32; None: the script sets it by an interface of torch's that does not mix with this one."""
    try:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
    except RuntimeError:
        return None
    try:
        return _product_flops(torch.float32, device, timed)
    finally:
        torch.set_float32_matmul_precision(before)


def types_used(events):
    """Types in which products and convolutions are computed, the commonest first; and whether a GPU does it."""
    products: Any = collections.Counter()
    convolutions: Any = collections.Counter()
    on_gpu = False
    for event in events:
        name = event.name()
        if name in _PRODUCT or name.startswith(_ATTENTION):
            counter = products
        elif name == _CONVOLUTION:
            counter = convolutions
        else:
            on_gpu = on_gpu or event.device_type() == torch.autograd.DeviceType.CUDA
            continue
        kinds = [_DTYPES[kind] for kind in event.dtypes() if kind in _DTYPES]
        counter.update(kinds[:1])
    # Without a product of its own, a convolution is compared with one.
    products.update(dict.fromkeys(convolutions, 0))
    first = [[name for name, _ in counter.most_common(MOST_TYPES)] for counter in (products, convolutions)]
    return first[0], first[1], on_gpu


def _product_flops(dtype, device, timed):
    def product(side):
        one = values(side * side, dtype, device).view(side, side)
        return lambda: torch.mm(one, one)

    return growing(product, FIRST_SIDE, 8192 if device == "cuda" else 2048, timed, lambda side: 2 * side**3)


def _convolution_flops(dtype, device, timed):
    weight = values(CHANNELS * CHANNELS * KERNEL**2, dtype, device).view(CHANNELS, CHANNELS, KERNEL, KERNEL)

    def convolution(images):
        pixels = values(images * CHANNELS * SIDE**2, dtype, device).view(images, CHANNELS, SIDE, SIDE)
        if REC.process.get("channels_last"):
            pixels = pixels.contiguous(memory_format=torch.channels_last)
        return lambda: torch.conv2d(pixels, weight, padding=KERNEL // 2)

    operations = 2 * SIDE**2 * CHANNELS**2 * KERNEL**2
    return growing(convolution, FIRST_IMAGES, MOST_IMAGES, timed, lambda images: images * operations)


def timer(device):
    """The function that gives the seconds a call takes on this kind of device, "cpu" or "cuda"."""
    return _on_gpu if device == "cuda" else _on_cpu


def values(count, dtype, device):
    """Values of all kinds: a GPU computes faster with constant ones. No random ones: the training draws those."""
    return torch.linspace(-1.0, 1.0, count, dtype=torch.float32, device=device).to(dtype)


def growing(make, size, most, timed, operations):
    """Operations a second, of the first size that takes long enough, or of the largest.

    Args:
        make: gives the call to time, for a size.
        size: the first one; it doubles.
        most: the largest.
        timed: gives the seconds that a call takes.
        operations: of a call, for a size.
    """
    while True:
        seconds = best_s(make(size), timed, BUDGET_S)
        if seconds >= LONG_S or 2 * size > most:
            return operations(size) / seconds
        size *= 2


def best_s(call, timed, budget_s):
    """The shortest of some calls, in seconds: others may hold up single ones, and the first one warms up."""
    best = spent_s = timed(call)
    for number in range(2, MOST_CALLS + 1):
        seconds = timed(call)
        best = min(best, seconds)
        spent_s += seconds
        if number >= LEAST_CALLS and spent_s > budget_s:
            break
    return best


def memory_bps(sizes, device, timed):
    """Pairs of bytes in memory and bytes a second, read and written: the better of scaling in place and copying."""
    left = available_bytes()
    found = []
    for size in sizes:
        if size > left / SPARED:
            break
        held = torch.ones(size // 4, dtype=torch.float32, device=device)
        passes = max(_AT_A_TIME // size, 1)
        one, other = held[: size // 8], held[size // 8 :]
        scaled_s = best_s(_repeated(passes, held.mul_, 1.0), timed, MEMORY_BUDGET_S)
        copied_s = best_s(_repeated(passes, one.copy_, other), timed, MEMORY_BUDGET_S)
        found.append([size, size * passes * max(2 / scaled_s, 1 / copied_s)])
    return found


def _repeated(times, function, argument):
    def call():
        for _ in range(times):
            function(argument)

    return call


def _on_cpu(call):
    start = time.perf_counter_ns()
    call()
    return max(time.perf_counter_ns() - start, 1) / 1e9


def _on_gpu(call):  # untested: needs a GPU
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    call()
    end.record()
    end.synchronize()
    return max(begin.elapsed_time(end), 1e-6) / 1e3


def finish_kernels():
    """Wait for the GPU, so that what is timed next has kernels of its own only."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
