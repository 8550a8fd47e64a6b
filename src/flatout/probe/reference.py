"""Reference operators, timed beside the kernel trace: what an operator costs here that computes nothing."""

import time

import torch

REGION = "flatout.reference"  # the region of the trace that holds the traced ones
OPERATORS = 200
REPEATS = 5
SIDE = 256  # rows and columns of the matrices: 34 million operations, too many for dispatch to count


@torch.no_grad()
def traced():
    """Reference operators inside the running trace: they show what tracing adds to an operator."""
    with torch.autograd.profiler.record_function(REGION):
        _add(OPERATORS)


@torch.no_grad()
def measure():
    """Nanoseconds of an operator called from Python, untraced, and the time of float64 over float32 in a product."""
    overhead_ns = min(_timed(_add, OPERATORS) for _ in range(REPEATS)) // OPERATORS
    wide, narrow = (_product_ns(dtype) for dtype in (torch.float64, torch.float32))
    return {"operator_ns": overhead_ns, "float64_factor": wide / narrow}


def _add(count):
    value = torch.ones(8, dtype=torch.float32, device="cpu")
    for _ in range(count):
        torch.add(value, value)


def _product_ns(dtype):
    one = torch.ones(SIDE, SIDE, dtype=dtype, device="cpu")
    return min(_timed(torch.mm, one, one) for _ in range(REPEATS))


def _timed(function, *arguments):
    start = time.perf_counter_ns()
    function(*arguments)
    return time.perf_counter_ns() - start
