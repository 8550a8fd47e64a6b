"""The stand-in is strict: what a real GPU would refuse, it refuses."""

from __future__ import annotations

import pytest
import torch

from tests.gpu import fake_gpu
from tests.gpu.fake_gpu import FakeGpu


def test_unknown_names_and_arguments_fail_as_they_do_in_torch(fake: FakeGpu) -> None:
    with pytest.raises(AttributeError):
        torch.cuda.set_float32_matmullightning_precision("high")  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        torch.cuda.synchronize(devices=0)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        torch.cuda.Event(timing=True)  # type: ignore[call-arg]


def test_a_function_of_the_driver_that_it_lacks_fails_with_its_name(fake: FakeGpu) -> None:
    torch.cuda.init()
    with pytest.raises(AssertionError, match="_cuda_ipc_collect is called"):
        torch.cuda.ipc_collect()


def test_a_stand_in_with_another_signature_than_the_real_class_is_refused() -> None:
    class Event:
        def record(self, flow: object = None) -> None: ...

    with pytest.raises(AssertionError, match="record"):
        fake_gpu.check_like(Event, torch.cuda.Event)


def test_tensors_of_both_places_do_not_mix_and_gradients_stay_where_the_weights_are(fake: FakeGpu) -> None:
    layer = torch.nn.Linear(4, 4).to("cuda")
    with pytest.raises(RuntimeError, match="same device"):
        layer(torch.ones(2, 4))
    layer(torch.ones(2, 4, device="cuda")).sum().backward()
    assert layer.weight.grad is not None and layer.weight.grad.is_cuda
    with pytest.raises(TypeError, match="can't convert cuda"):
        layer.weight.detach().numpy()


def test_only_what_reads_a_value_waits_for_the_device(fake: FakeGpu) -> None:
    x = torch.ones(4).to("cuda", non_blocking=True)
    torch.cuda._sleep(1_000)
    total = (x * 2).sum()
    assert fake.waits == 0
    assert total.item() == 8
    assert fake.waits == 1


def test_events_tell_the_devices_time_and_refuse_what_is_not_over() -> None:
    now = [1_000_000]
    gpu = FakeGpu(now_ns=lambda: now[0])
    made = fake_gpu.event_class(gpu)
    begin, end = made(enable_timing=True), made(enable_timing=True)
    begin.record()
    gpu.queue(5_000_000)
    end.record()
    with pytest.raises(RuntimeError, match="not ready"):
        begin.elapsed_time(end)
    now[0] += 5_000_000
    assert begin.elapsed_time(end) == 5.0


def test_memory_is_counted_while_a_tensor_lives(fake: FakeGpu) -> None:
    x = torch.zeros(1 << 20, device="cuda")
    assert torch.cuda.memory_allocated() == 4 << 20
    del x
    assert torch.cuda.memory_allocated() == 0
    assert torch.cuda.max_memory_allocated() == 4 << 20
