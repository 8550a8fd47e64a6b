"""Reference operators, timed beside the kernel trace: what an operator costs here that computes nothing."""

import functools
import time

import torch

from .recorder import REC
from .replacements import quick_bce, quick_masks

REGION = "flatout.reference"  # the region of the trace that holds the traced ones
OPERATORS = 200
REPEATS = 5
ELEMENTS = 1 << 18  # of a mask, and of a loss
SIDE = 256  # rows and columns of the matrices: 34 million operations, too many for dispatch to count


@torch.no_grad()
def traced():
    """Reference operators inside the running trace: they show what tracing adds to an operator."""
    with torch.autograd.profiler.record_function(REGION):
        _add(OPERATORS)


@torch.no_grad()
def measure():
    """Nanoseconds of an operator called from Python, untraced, and of slow kernels; the time of float64 over float32.

    The last of a product, and for a model of 64-bit floats of both passes of a convolution, which oneDNN has in float32
    only.
    """
    overhead_ns = min(_timed(_add, OPERATORS) for _ in range(REPEATS)) // OPERATORS
    found = {"operator_ns": overhead_ns, "float64_factor": _wide_over_narrow(_product_ns)}
    if REC.process.get("param_dtype") == "float64":
        dims = REC.process.get("convolutions") or 1  # in the record, only those of images and volumes have a number
        found["float64_convolution_factor"] = _wide_over_narrow(functools.partial(_convolution_ns, dims))
    if not torch.cuda.is_initialized():
        found.update(_slow_kernels_ns())
    return found


def _slow_kernels_ns():
    """A mask of dropout, with random numbers of its own, and a binary cross-entropy: as torch has them, and quicker."""
    generator = torch.Generator().manual_seed(0)
    like = torch.empty(ELEMENTS, dtype=torch.float32, device="cpu")
    half = torch.full_like(like, 0.5)
    ways = {
        "bernoulli_ns": lambda: like.bernoulli_(0.9, generator=generator),
        "quick_mask_ns": lambda: quick_masks.noise(like, 0.1, generator),
        "bce_ns": lambda: torch.ops.aten.binary_cross_entropy(half, half, None, 1),
        "quick_bce_ns": lambda: quick_bce.binary_cross_entropy(half, half, "mean"),
    }
    return {name: min(_timed(way) for _ in range(REPEATS)) for name, way in ways.items()}


def _wide_over_narrow(measure_ns):
    return measure_ns(torch.float64) / measure_ns(torch.float32)


def _add(count):
    value = torch.ones(8, dtype=torch.float32, device="cpu")
    for _ in range(count):
        torch.add(value, value)


def _product_ns(dtype):
    one = torch.ones(SIDE, SIDE, dtype=dtype, device="cpu")
    return min(_timed(torch.mm, one, one) for _ in range(REPEATS))


def _convolution_ns(dims, dtype):
    side = round(4096 ** (1 / dims))
    batch = torch.ones(4, 16, *[side] * dims, dtype=dtype, device="cpu", requires_grad=True)
    weight = torch.ones(16, 16, *[3] * dims, dtype=dtype, device="cpu", requires_grad=True)
    convolution = getattr(torch, "conv%dd" % dims)

    def passes():
        with torch.enable_grad():
            torch.autograd.grad(convolution(batch, weight).sum(), (batch, weight))

    return min(_timed(passes) for _ in range(REPEATS))


def _timed(function, *arguments):
    start = time.perf_counter_ns()
    function(*arguments)
    return time.perf_counter_ns() - start
