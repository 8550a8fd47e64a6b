"""Each setting made for debugging is seen when it is on, off while it is switched off, and back afterwards."""

import cProfile
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from flatout.probe import debugging


@contextmanager
def profile_function() -> Iterator[None]:
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, argument: None)
    yield
    sys.setprofile(before)


@contextmanager
def c_profile() -> Iterator[None]:
    with cProfile.Profile():
        yield


@contextmanager
def traced_memory() -> Iterator[None]:
    tracemalloc.start(3)
    yield
    tracemalloc.stop()


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@contextmanager
def one_backward_thread() -> Iterator[None]:
    torch._C._set_multithreading_enabled(False)
    yield
    torch._C._set_multithreading_enabled(True)


@contextmanager
def checked_distributions() -> Iterator[None]:
    restore = debugging.count_distributions()
    torch.distributions.Normal(0.0, 1.0)
    yield
    restore()
    debugging._distributions[0] = 0


@pytest.mark.parametrize(
    ("name", "on"),
    [
        ("profile_function", profile_function),
        ("profile_function", c_profile),
        ("tracemalloc", traced_memory),
        ("deterministic", deterministic),
        ("backward_threads", one_backward_thread),
        ("validate_args", checked_distributions),
    ],
)
def test_a_setting_is_off_only_meanwhile(name: str, on: Callable[[], Iterator[None]]) -> None:
    is_on = debugging.SETTINGS[name].is_on
    assert not is_on()
    with on():  # type: ignore[attr-defined]
        assert is_on()
        restore = debugging.switch_off(name)
        # Scripts that ask get the answer that they would get without the change.
        assert not is_on() or name == "tracemalloc"
        restore()
        assert is_on()
    assert not is_on()


def test_a_script_that_takes_a_snapshot_meanwhile_finds_memory_traced() -> None:
    with traced_memory():
        restore = debugging.switch_off("tracemalloc")
        assert tracemalloc.is_tracing()
        assert tracemalloc.take_snapshot() is not None
        restore()
        assert tracemalloc.is_tracing() and tracemalloc.get_traceback_limit() == 3


def test_a_stopped_profiler_goes_on_with_its_events() -> None:
    with torch.profiler.profile() as profile:
        torch.ones(3).sin()
        restore = debugging.switch_off("profiler")
        torch.ones(3).cos()
        restore()
        torch.ones(3).tan()
    seen = {event.key for event in profile.key_averages()}
    assert {"aten::sin", "aten::tan"} <= seen and "aten::cos" not in seen


def test_cudnn_is_deterministic_again_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    restore = debugging.switch_off("cudnn_deterministic")
    assert not torch.backends.cudnn.deterministic
    restore()
    assert torch.backends.cudnn.deterministic


def test_what_the_script_has_switched_off_stays_off() -> None:
    assert debugging.switch_off("deterministic")() is None
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_mode_that_counts_operations_is_left_out_meanwhile_and_no_other_one() -> None:
    class Doubled(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {})) * 2

    def counted() -> int:
        with FlopCounterMode(display=False) as counter:
            torch.ones(4, 4) @ torch.ones(4, 4)
        return counter.get_total_flops()

    is_on = debugging.SETTINGS["counting_mode"].is_on
    assert counted() == 128 and not is_on()
    around, across = FlopCounterMode(display=False), FlopCounterMode(display=False)
    with around:
        assert is_on()
        restore = debugging.switch_off("counting_mode")
    across.__enter__()
    assert counted() == 0 and not is_on()
    with Doubled():
        assert torch.ones(2).neg().tolist() == [-4.0, -4.0]  # both operators
        assert not is_on()
    restore()
    across.__exit__(None, None, None)
    assert counted() == 128 and not is_on()
