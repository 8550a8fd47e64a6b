"""Settings of torch's own libraries, and how soon Python's threads give up the interpreter lock."""

import functools
import multiprocessing
import sys

import torch

from ..settings import injected_by
from ..unbound import Unbound


def install(injected, watch):
    """Apply the settings immediately; a script that sets one other than the number of threads overrides it."""
    for name in injected_by("backends"):
        if injected.get(name) is not None:
            switch(name, injected.get(name))
            injected.done(name)
    if injected.get("threads") is not None:
        torch.set_num_threads = _in_workers_only(torch.set_num_threads)


def _in_workers_only(original):
    """What the script asks for in the training process is what the setting replaces; a worker has its own number."""

    @functools.wraps(original)
    def set_num_threads(count):
        if multiprocessing.parent_process() is not None:
            original(count)

    return Unbound(set_num_threads)


def switch(name, value):
    """Apply one of these settings; returns what undoes it."""
    return _SWITCHES[name](value)


def _threads(count):
    before = torch.get_num_threads()
    torch._C.set_num_threads(count)
    return lambda: torch._C.set_num_threads(before)


def _tf32(wanted):
    products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if wanted else "highest")
    torch.backends.cudnn.allow_tf32 = bool(wanted)

    # untested: only in live trials on a GPU
    def undo():
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = convolutions

    return undo


def _cudnn_benchmark(wanted):
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = bool(wanted)

    # untested: only in live trials on a GPU
    def undo():
        torch.backends.cudnn.benchmark = before

    return undo


def _switch_interval_us(wanted):
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6 * wanted)
    return lambda: sys.setswitchinterval(before)


_SWITCHES = {
    "threads": _threads,
    "tf32": _tf32,
    "cudnn_benchmark": _cudnn_benchmark,
    "switch_interval_us": _switch_interval_us,
}
