"""Device time on the host's clock, on a device made of two counters: nothing here waits for anything."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from flatout.probe import events
from flatout.probe.hooks import device

MS = 1_000_000
S = 1_000_000_000
OFFSET_NS = 7 * S  # where the device's clock stands against the host's


@dataclass
class Machine:
    """A host, and a device that works through its queue in order."""

    host_ns: int = 100 * S
    busy_until_ns: int = 0  # host's clock
    emitted: list[tuple[int, int, int, int]] = field(default_factory=list)
    capturing: bool = False
    initialized: bool = True

    def compute(self, duration_ns: int) -> tuple[int, int]:
        """Queue work on the device; gives the span that it takes on the host's clock."""
        start = max(self.host_ns, self.busy_until_ns)
        self.busy_until_ns = start + duration_ns
        return start, self.busy_until_ns

    def emit(self, kind: int, start: int, end: int, arg: int = 0, a: int = 0, b: int = 0) -> None:
        self.emitted.append((kind, start, end, arg))

    def is_initialized(self) -> bool:
        return self.initialized

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def synchronize(self) -> None:
        raise AssertionError("the device was waited for")


def event_class(machine: Machine) -> type:
    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing
            self.at_ns: int | None = None  # device's clock

        def record(self, stream: None) -> None:
            self.at_ns = max(machine.host_ns, machine.busy_until_ns) + OFFSET_NS

        def query(self) -> bool:
            assert self.at_ns is not None
            return machine.host_ns + OFFSET_NS >= self.at_ns

        def elapsed_time(self, other: Event) -> float:
            """Milliseconds, rounded as a float32 is."""
            assert self.at_ns is not None and other.at_ns is not None
            assert self.query() and other.query(), "asked for before the device was there"
            elapsed_ms = (other.at_ns - self.at_ns) / MS
            digits = 7 - (math.floor(math.log10(abs(elapsed_ms))) + 1 if elapsed_ms else 0)
            return round(elapsed_ms, digits)

        def synchronize(self) -> None:
            raise AssertionError("the device was waited for")

    return Event


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(machine, "Event", event_class(machine), raising=False)
    monkeypatch.setattr(device, "_cuda", machine)
    monkeypatch.setattr(device, "now", lambda: machine.host_ns)
    monkeypatch.setattr(device, "_anchor", [None, 0, 0])
    monkeypatch.setattr(device, "_spare", [])
    monkeypatch.setattr(device, "_stream", lambda: None)
    device._pending.clear()
    monkeypatch.setattr(device.REC, "emit", machine.emit)
    yield machine
    device._pending.clear()


def phase(machine: Machine, kind: int, duration_ns: int, launch_ns: int) -> tuple[int, int]:
    """A phase whose launch costs the host less than the device."""
    mark = device.mark()
    truth = machine.compute(duration_ns)
    machine.host_ns += launch_ns
    device.span(kind, mark)
    return truth


def spans(machine: Machine) -> list[tuple[int, int]]:
    assert {kind for kind, *_ in machine.emitted} <= {events.DEVICE_SPAN}
    return [(start, end) for _, start, end, _ in machine.emitted]


def test_spans_lie_where_the_device_ran_them_however_far_the_host_has_run_ahead(machine: Machine) -> None:
    truth = []
    for _ in range(10):
        truth.append(phase(machine, events.FORWARD, 20 * MS, 1 * MS))
        truth.append(phase(machine, events.BACKWARD, 40 * MS, 2 * MS))
    machine.host_ns = machine.busy_until_ns
    device.resolve()
    for (start, end), (true_start, true_end) in zip(spans(machine), truth, strict=True):
        assert start == pytest.approx(true_start, abs=1_000)
        assert end == pytest.approx(true_end, abs=1_000)
    assert [arg for *_, arg in machine.emitted] == [events.FORWARD, events.BACKWARD] * 10


def test_only_spans_that_the_device_has_passed_are_told(machine: Machine) -> None:
    phase(machine, events.FORWARD, 20 * MS, 1 * MS)
    phase(machine, events.BACKWARD, 40 * MS, 1 * MS)
    device.resolve()
    assert spans(machine) == []
    machine.host_ns += 30 * MS
    device.resolve()
    assert len(spans(machine)) == 1
    machine.host_ns += 30 * MS
    device.resolve()
    assert len(spans(machine)) == 2


def test_a_first_phase_that_finds_the_device_busy_is_corrected_by_a_later_one_that_does_not(machine: Machine) -> None:
    machine.compute(500 * MS)  # work of before the first mark: the anchor is half a second too early
    phase(machine, events.FORWARD, 10 * MS, 1 * MS)
    machine.host_ns = machine.busy_until_ns + 50 * MS  # the host waits for a batch, the device is idle
    truth = phase(machine, events.FORWARD, 10 * MS, 1 * MS)
    machine.host_ns = machine.busy_until_ns
    device.resolve()
    assert spans(machine)[-1] == pytest.approx(truth, abs=1_000)


def test_a_new_anchor_keeps_the_clocks_together(machine: Machine) -> None:
    truth = []
    for _ in range(40):  # two minutes
        truth.append(phase(machine, events.FORWARD, 1 * S, 10 * MS))
        truth.append(phase(machine, events.BACKWARD, 2 * S, 10 * MS))
        machine.host_ns = machine.busy_until_ns
        device.resolve()
    first_anchor = device._anchor[0]
    assert len(spans(machine)) == 80
    for (start, end), (true_start, true_end) in zip(spans(machine), truth, strict=True):
        # elapsed_time() is a float32 of milliseconds: 20 s are known to a few microseconds, and errors add up.
        assert start == pytest.approx(true_start, abs=50_000)
        assert end == pytest.approx(true_end, abs=50_000)
    machine.host_ns += 21 * S
    phase(machine, events.FORWARD, 1 * S, 10 * MS)
    machine.host_ns = machine.busy_until_ns
    device.resolve()
    assert device._anchor[0] is not first_anchor


def test_events_are_used_again(machine: Machine) -> None:
    for _ in range(50):
        phase(machine, events.FORWARD, 5 * MS, 1 * MS)
        machine.host_ns = machine.busy_until_ns
        device.resolve()
    assert len(device._spare) == 2


def test_a_graph_that_is_being_captured_gets_no_events(machine: Machine) -> None:
    machine.capturing = True
    assert device.mark() is None


def test_the_driver_is_not_started_for_a_training_that_does_not_use_it(machine: Machine) -> None:
    machine.initialized = False
    assert device.mark() is None


def test_spans_that_are_never_passed_take_no_more_than_their_share_of_memory(machine: Machine) -> None:
    for _ in range(device.MAX_PENDING + 10):
        phase(machine, events.FORWARD, 1 * S, 1)
    machine.host_ns = machine.busy_until_ns
    device.resolve()
    assert len(spans(machine)) == device.MAX_PENDING


def test_a_stream_is_made_once_and_only_while_it_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, made = (0, 0, 1), []
    monkeypatch.setattr(device, "_streams", {})
    monkeypatch.setattr(device, "MOST_STREAMS", 2)
    monkeypatch.setattr(device.torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(device.torch._C, "_cuda_getCurrentStream", lambda index: numbers, raising=False)
    monkeypatch.setattr(device._cuda, "current_stream", lambda: made.append(numbers) or made[-1])
    assert [device._stream(), device._stream()] == [(0, 0, 1)] * 2 and len(made) == 1
    for number in (1, 2, 2):
        numbers = (number, 0, 1)
        assert device._stream() == numbers
    assert len(made) == 3 and list(device._streams) == [numbers]
    monkeypatch.delattr(device.torch._C, "_cuda_getCurrentStream")
    assert device._stream() is None
