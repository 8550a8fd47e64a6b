"""Settings that slow a training down and are made for debugging: which are on, and how to switch each off for a while.

Whatever a script does to a setting while it is switched off takes effect when it is restored.
"""

import os
import re
import sys
import tracemalloc
from typing import Any, Callable, NamedTuple

import torch

from . import counting_modes
from .recorder import REC, quietly
from .sites import is_user_file

MOST_FILES = 200  # of the user's, searched for the line that switches a setting on
# Variables read when a process or a device starts: nothing can be switched off later.
_VARIABLES = (
    "CUDA_LAUNCH_BLOCKING",
    "TORCH_USE_CUDA_DSA",
    "TORCH_SHOW_CPP_STACKTRACES",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "PYTHONDEVMODE",
)
# Tracers of debuggers print a warning when they are replaced.
_DEBUGGERS = ("pydevd", "_pydevd", "debugpy")


class Setting(NamedTuple):
    """One setting.

    Attributes:
        is_on: asked in the training thread.
        switch_off: does it, and returns the function that restores it.
        written: a pattern of the line that switches it on.
        for_a_while: scripts have it on for a part of each step, and it can be kept off meanwhile.
    """

    is_on: "Callable[[], Any]"
    switch_off: "Callable[[], Callable[[], None]]"
    written: str
    for_a_while: bool = False


def environment():
    """The variables for debugging that are set, with their values."""
    found = {name: os.environ[name] for name in _VARIABLES if os.environ.get(name, "0") not in ("", "0")}
    detail = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "")
    if detail.upper() == "DETAIL":
        found["TORCH_DISTRIBUTED_DEBUG"] = detail
    if "debug" in os.environ.get("PYTHONMALLOC", ""):
        found["PYTHONMALLOC"] = os.environ["PYTHONMALLOC"]
    if any(name.startswith("NV_SANITIZER") for name in os.environ):
        found["compute-sanitizer"] = "runs"
    return found


@quietly
def note():
    """Write down what is on now, with its line; what was on earlier stays noted."""
    noted = dict(REC.process.get("debugging") or {})
    names = [name for name in on() if name not in noted]
    noted.update(lines_of(names))
    noted.update(environment())
    REC.save_process(debugging=noted)


def on():
    """Names of the settings that are on in this thread."""
    return [name for name, setting in SETTINGS.items() if _asked(setting.is_on)]


def _asked(function):
    """The answer; False where this version of torch or Python lacks it."""
    try:
        return bool(function())
    except Exception:
        return False


def lines_of(names):
    """``file:line`` in the user's code that switches each setting on; empty where none was found."""
    found = dict.fromkeys(names, "")
    paths = [getattr(module, "__file__", None) for module in list(sys.modules.values())] if names else []
    scripts = [path for path in paths if isinstance(path, str) and path.endswith(".py") and is_user_file(path)]
    for path in scripts[:MOST_FILES]:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = file.read(1 << 20).splitlines()
        except OSError:
            continue
        for name in names:
            number = _first(SETTINGS[name].written, lines) if not found[name] else None
            if number:
                found[name] = "%s:%d" % (path, number)
    return found


def _first(pattern, lines):
    """The number of the first line of code with the pattern."""
    matching = re.compile(pattern)
    for number, line in enumerate(lines, 1):
        if matching.search(line.partition("#")[0]):
            return number
    return None


def _anomaly_off():
    """Also ``with detect_anomaly():`` around each step asks in vain."""
    wanted = [torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()]
    real = torch.set_anomaly_enabled

    def set_anomaly_enabled(mode, check_nan=True):
        wanted[:] = [mode, check_nan]

    originals = _replace(
        torch,
        set_anomaly_enabled=set_anomaly_enabled,
        is_anomaly_enabled=lambda: wanted[0],
        is_anomaly_check_nan_enabled=lambda: wanted[1],
    )
    real(False)

    def restore():
        _replace(torch, **originals)
        real(*wanted)

    return restore


def _replace(module: Any, **values):
    """Set attributes of a module; returns the earlier values."""
    before = {name: getattr(module, name) for name in values}
    for name, value in values.items():
        setattr(module, name, value)
    return before


def _profiler_off():
    """A profiler that is stopped loses its events: instead, it sees no operators of this thread meanwhile."""
    torch.autograd._enable_record_function(False)
    return lambda: torch.autograd._enable_record_function(True)


def _trace_function():
    tracer = sys.gettrace()
    home = getattr(tracer, "__module__", None) or type(tracer).__module__
    return callable(tracer) and not str(home).startswith(_DEBUGGERS)


def _trace_function_off():
    tracer = sys.gettrace()
    sys.settrace(None)
    return lambda: sys.settrace(tracer)


def _profile_function():
    profile: Any = sys.getprofile()
    return callable(profile) or hasattr(profile, "disable")


def _profile_function_off():
    profile: Any = sys.getprofile()
    if not callable(profile):  # cProfile, which is no function
        profile.disable()
        return profile.enable
    sys.setprofile(None)
    return lambda: sys.setprofile(profile)


def _monitoring_tools():
    """Ids of the tools of ``sys.monitoring`` (Python 3.12) that get events of all code, with these events."""
    monitoring: Any = getattr(sys, "monitoring", None)
    tools = range(6) if monitoring is not None else ()
    return {tool: monitoring.get_events(tool) for tool in tools if monitoring.get_tool(tool)}


def _monitoring_off():
    monitoring: Any = getattr(sys, "monitoring", None)
    before = _monitoring_tools()
    for tool in before:
        monitoring.set_events(tool, 0)

    # untested: needs Python 3.12, and tests are measured on 3.11
    def restore():
        for tool, wanted in before.items():
            if monitoring.get_tool(tool):
                monitoring.set_events(tool, wanted)

    return restore


def _tracemalloc_off():
    """A snapshot that the script takes meanwhile switches it on again: it would fail otherwise."""
    frames = tracemalloc.get_traceback_limit()
    real = tracemalloc.is_tracing
    tracemalloc.stop()

    def is_tracing():
        if not real():
            tracemalloc.start(frames)
        return True

    originals = _replace(tracemalloc, is_tracing=is_tracing)

    def restore():
        _replace(tracemalloc, **originals)
        if not real():
            tracemalloc.start(frames)

    return restore


def _deterministic_off():
    only_warn = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(False)
    return lambda: torch.use_deterministic_algorithms(True, warn_only=only_warn)


def _cudnn_deterministic():
    return torch.cuda.is_initialized() and torch.backends.cudnn.deterministic


def _cudnn_deterministic_off():
    torch.backends.cudnn.deterministic = False

    def restore():
        torch.backends.cudnn.deterministic = True

    return restore


def _backward_threads_on():
    torch._C._set_multithreading_enabled(True)
    return lambda: torch._C._set_multithreading_enabled(False)


_distributions: Any = [0]  # those made since they are counted


def count_distributions():
    """Count the ``torch.distributions`` that are made from now on: their arguments are checked by default."""
    kind = torch.distributions.Distribution
    original = kind.__init__

    def __init__(self, *args, **kwargs):
        _distributions[0] += 1
        original(self, *args, **kwargs)

    setattr(kind, "__init__", __init__)  # noqa: B010

    def restore():
        setattr(kind, "__init__", original)  # noqa: B010

    return restore


def _checked_distributions():
    return _distributions[0] and torch.distributions.Distribution._validate_args


def _checks_off():
    torch.distributions.Distribution.set_default_validate_args(False)
    return lambda: torch.distributions.Distribution.set_default_validate_args(True)


# By the name that the record has.
SETTINGS: "dict[str, Setting]" = {
    "anomaly_mode": Setting(
        torch.is_anomaly_enabled, _anomaly_off, r"detect_anomaly\s*\(|detect_anomaly\s*=\s*True", True
    ),
    "profiler": Setting(torch.autograd._profiler_enabled, _profiler_off, r"\bprofiler?\.\w+\(|\bprofile\(", True),
    "trace_function": Setting(_trace_function, _trace_function_off, r"\bsettrace\("),
    "profile_function": Setting(_profile_function, _profile_function_off, r"\bsetprofile\(|cProfile|\bProfile\("),
    "monitoring_tool": Setting(
        lambda: any(_monitoring_tools().values()), _monitoring_off, r"\bmonitoring\.set_events\(|cProfile|coverage"
    ),
    "tracemalloc": Setting(tracemalloc.is_tracing, _tracemalloc_off, r"tracemalloc\.start\("),
    "deterministic": Setting(
        torch.are_deterministic_algorithms_enabled,
        _deterministic_off,
        r"use_deterministic_algorithms\(|deterministic\s*=\s*(True|\"warn\")",
    ),
    "cudnn_deterministic": Setting(_cudnn_deterministic, _cudnn_deterministic_off, r"cudnn\.deterministic\s*=\s*True"),
    "backward_threads": Setting(
        lambda: not torch._C._is_multithreading_enabled(), _backward_threads_on, r"set_multithreading_enabled\("
    ),
    "validate_args": Setting(_checked_distributions, _checks_off, r"\bdistributions\b"),
    "counting_mode": Setting(
        counting_modes.active, counting_modes.left_out, r"\b(FlopCounter|Debug|LoggingTensor)Mode\(", True
    ),
}


def switch_off(name):
    """Switch a setting off; returns the function that restores it."""
    setting = SETTINGS[name]
    if setting.for_a_while or _asked(setting.is_on):
        return setting.switch_off()
    return _nothing  # the script has switched it off by now


def _nothing():
    return None
