"""What settings add to /dev/shm and to the GPU."""

from dataclasses import replace

from flatout.measure.measured_run import Process, Usage
from flatout.predict.memory_costs import memory_costs
from tests.diagnose.views import starved, with_loader

GIB = 1 << 30


def test_queues_of_workers_lie_in_shared_memory() -> None:
    view = starved()
    view = with_loader(view, num_workers=2, prefetch_factor=2, batch_bytes=100, batch_size=8)
    assert memory_costs(view, {"num_workers": 6}).shm_bytes == 800
    assert memory_costs(view, {"prefetch_factor": 4}).shm_bytes == 400
    assert memory_costs(view, {"batch_size": 16}).shm_bytes == 400
    assert memory_costs(view, {"num_workers": 1}).shm_bytes == -200
    assert memory_costs(view, {"tf32": True}).shm_bytes == 0
    unknown = with_loader(view, batch_bytes=None)
    assert memory_costs(unknown, {"num_workers": 6}).shm_bytes is None


def test_a_larger_batch_takes_gpu_memory_and_compilation_an_unknown_amount() -> None:
    view = starved(uses_gpu=True)
    view = replace(
        with_loader(view, batch_size=8),
        usage=Usage(gpu_memory_used_bytes=20 * GIB, gpu_memory_total_bytes=80 * GIB),
        process=Process(param_bytes=GIB),
    )
    assert memory_costs(view, {"batch_size": 16}).device_bytes == 19 * GIB
    assert memory_costs(view, {"compile": "default"}).device_bytes is None
    assert memory_costs(view, {"num_workers": 4}).device_bytes == 0
    assert memory_costs(starved(uses_gpu=False), {"batch_size": 16}).device_bytes == 0
