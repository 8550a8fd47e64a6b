"""Rates of the device: on a clock that only moves when told, and in a training that allows experiments."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from flatout.probe import device_rates  # noqa: E402
from tests.probe.recorded import run_bare, run_probed  # noqa: E402

SCRIPT = """
    import json, os, sys, torch
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def ask(command):
        with open(os.path.join(os.environ["FLATOUT_RUN"], "control"), "r+b") as file:
            file.write(bytes([command]))

    def flags():
        return sys.modules["_flatout_probe.recorder"].REC.flags

    losses, waits = [], [(3, 4), (2, 1)] if "experiments" in sys.argv else [(2, 1)]
    awaited = 0
    for number in range(20_000):
        if number >= 20 and "FLATOUT_RUN" in os.environ:
            if flags() & awaited == awaited:
                if not waits:
                    break
                command, awaited = waits.pop(0)
                ask(command)
        loss = net(torch.randn(4, 3, 8, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if number == 60 and "FLATOUT_RUN" not in os.environ:
            break
    losses.append(torch.rand(1).item())
    print(json.dumps({"losses": losses[:40], "state": torch.get_num_threads()}))
"""


class Clock:
    """Gives each call the seconds that a device of this rate would take."""

    def __init__(self, rate: float, launch_s: float = 0.0, held_up: tuple[int, ...] = ()) -> None:
        self.rate, self.launch_s, self.held_up = rate, launch_s, held_up
        self.operations = 0.0
        self.calls = 0

    def make(self, size: int) -> Callable[[], None]:
        def call() -> None:
            self.operations = 2 * size**3

        return call

    def timed(self, call: Callable[[], None]) -> float:
        call()
        self.calls += 1
        late_s = 1.0 if self.calls in self.held_up else 0.0
        return self.operations / self.rate + self.launch_s + late_s


def measured(clock: Clock, most: int = 8192) -> float:
    return device_rates.growing(clock.make, 256, most, clock.timed, lambda size: 2 * size**3)


@pytest.mark.parametrize("rate", [1e9, 1e11, 1e13])
def test_sizes_grow_until_launches_do_not_matter(rate: float) -> None:
    assert measured(Clock(rate, launch_s=20e-6)) == pytest.approx(rate, rel=0.02)


def test_a_device_that_is_too_fast_gets_the_largest_size() -> None:
    clock = Clock(1e15, launch_s=20e-6)
    assert measured(clock, most=1024) == pytest.approx(2 * 1024**3 / (2 * 1024**3 / 1e15 + 20e-6))


def test_calls_that_are_held_up_are_no_measure() -> None:
    assert measured(Clock(1e11, held_up=(13, 15))) == pytest.approx(1e11)


def test_a_slow_device_is_not_called_often() -> None:
    clock = Clock(1e8)
    assert measured(clock) == pytest.approx(1e8)
    assert clock.calls == device_rates.LEAST_CALLS


def test_memory_that_is_nearly_full_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_rates, "available_bytes", lambda: 40 << 20)
    found = device_rates.memory_bps((1 << 20, 1 << 21, 1 << 22), "cpu", lambda call: 1e-3)
    assert [size for size, _ in found] == [1 << 20, 1 << 21]
    # Sixteen passes a call, each of which reads and writes: 2 MiB.
    assert found[0][1] == pytest.approx(16 * 2 * (1 << 20) / 1e-3)


class Event:
    """An event of torch's profiler."""

    def __init__(self, name: str, *dtypes: str, device: str = "CPU") -> None:
        self._name, self._dtypes, self._device = name, list(dtypes), device

    def name(self) -> str:
        return self._name

    def dtypes(self) -> list[str]:
        return self._dtypes

    def device_type(self) -> Any:
        torch = pytest.importorskip("torch")
        return getattr(torch.autograd.DeviceType, self._device)


def test_the_types_of_the_step_are_measured() -> None:
    half, single = "c10::BFloat16", "float"
    events = [
        Event("aten::mm", single, single),
        *[Event("aten::addmm", half, half, half)] * 3,
        Event("aten::convolution", half, half),
        Event("aten::embedding", "double", "long int"),
        Event("aten::mm", "c10::complex<float>"),
    ]
    assert device_rates.types_used(events) == (["bfloat16", "float32"], ["bfloat16"], False)
    assert device_rates.types_used([*events, Event("sgemm", device="CUDA")])[2]


def test_convolutions_alone_are_compared_with_a_product_too() -> None:
    assert device_rates.types_used([Event("aten::convolution", "float")]) == (["float32"], ["float32"], False)


@pytest.mark.slow
def test_rates_are_recorded_where_experiments_are_allowed(tmp_path: Path) -> None:
    ran = run_probed(tmp_path, SCRIPT, "experiments")
    assert ran.code == 0 and ran.faults() == [], ran.err
    found = ran.main.info["ceilings"]
    assert "failed" not in found
    assert (found["device"], found["threads"]) == ("cpu", 1)
    formats = ["float32", *device_rates._other_formats(["float32"], on_gpu=False)]  # what this processor has
    assert list(found["product_flops"]) == list(found["convolution_flops"]) == formats
    assert all(rate > 1e6 for rate in (*found["product_flops"].values(), *found["convolution_flops"].values()))
    assert [size for size, _ in found["memory_bps"]] == sorted(size for size, _ in found["memory_bps"]) != []
    bare = run_bare(tmp_path, SCRIPT)
    assert json.loads(bare.out)["losses"] == json.loads(ran.out)["losses"]


@pytest.mark.slow
def test_the_trace_alone_measures_no_rates(tmp_path: Path) -> None:
    ran = run_probed(tmp_path, SCRIPT)
    assert ran.code == 0 and ran.faults() == [], ran.err
    assert "operator_ns" in ran.main.info["reference"]
    assert "ceilings" not in ran.main.info


@pytest.mark.slow
def test_ranks_that_share_the_cores_do_not_measure_each_other(tmp_path: Path) -> None:
    ran = run_probed(tmp_path, SCRIPT, "experiments", env={"WORLD_SIZE": "2", "RANK": "0"})
    assert ran.main.info["ceilings"] == {"failed": "2 ranks share the cores"}


@pytest.mark.parametrize(
    ("products", "capability", "expected"),
    [
        (["float32"], (9, 0), ("bfloat16",)),
        (["float32"], (7, 5), ("float16",)),
        (["float32"], (6, 1), ()),
        (["float32", "bfloat16"], (8, 0), ()),
        (["float16"], (9, 0), ()),
    ],
)
def test_a_step_in_float32_is_compared_with_what_the_gpu_has_units_for(
    monkeypatch: pytest.MonkeyPatch, products: list[str], capability: tuple[int, int], expected: tuple[str, ...]
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    assert device_rates._other_formats(products, on_gpu=True) == expected


def test_tf32_is_on_for_its_rate_only_and_left_out_where_it_cannot_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen = torch.get_float32_matmul_precision(), []

    def product(*_: object) -> float:
        seen.append(torch.get_float32_matmul_precision())
        return 1e12

    monkeypatch.setattr(device_rates, "_product_flops", product)
    assert device_rates._tf32_flops("cuda", None) == 1e12
    assert seen == ["high"] and torch.get_float32_matmul_precision() == before

    def mixed(*_: object) -> None:
        raise RuntimeError("mix of the legacy and new APIs")

    monkeypatch.setattr(torch, "set_float32_matmul_precision", mixed)
    assert device_rates._tf32_flops("cuda", None) is None and len(seen) == 1


@pytest.mark.parametrize(
    ("line", "others"),
    [
        ("flags : fpu avx512f avx512_bf16", ("bfloat16",)),
        ("Features : asimd bf16", ("bfloat16",)),
        ("flags : fpu avx512f", ()),
        (None, ()),
    ],
)
def test_16_bits_are_measured_on_a_cpu_that_has_instructions_for_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str | None, others: tuple[str, ...]
) -> None:
    path = tmp_path / "cpuinfo"
    if line is not None:
        path.write_text(f"processor : 0\n{line}\n")
    monkeypatch.setattr(device_rates, "open", lambda name: path.open(), raising=False)
    assert device_rates._other_formats(["float32"], on_gpu=False) == others
    assert device_rates._other_formats(["float32", "bfloat16"], on_gpu=False) == ()
    assert device_rates._other_formats(["float64"], on_gpu=False) == ()
