"""Device memory at other batch sizes, from one run."""

from dataclasses import replace

from flatout.measure.measured_run import Process, Usage
from flatout.predict.device_memory import device_memory
from tests.diagnose.views import starved

GB = 1000**3


def on_gpu(used: float, total: float, weights: float, batch: int):
    return replace(
        starved(uses_gpu=True, batch_size=batch),
        usage=Usage(gpu_memory_used_bytes=int(used * GB), gpu_memory_total_bytes=int(total * GB)),
        process=Process(param_bytes=int(weights * GB)),
    )


def test_a_patch_that_fills_the_gpu_leaves_no_room_for_a_second_one() -> None:
    """77 of 80 GB at batch 1: not 5.3 MB more, as its batch is, but as much again as grows with the batch."""
    memory = device_memory(on_gpu(77, 80, 0.4, 1))
    assert memory is not None
    low, high = memory.at(2)
    assert 150 * GB < low < high < 154 * GB
    assert not memory.fits(2) and memory.fits(1)


def test_a_model_that_is_mostly_weights_grows_slowly() -> None:
    memory = device_memory(on_gpu(60, 80, 14, 4))
    assert memory is not None and memory.fits(8)
    low, high = memory.at(8)
    assert 60 * GB < low < 64 * GB and 100 * GB < high < 107 * GB


def test_without_a_gpu_or_its_memory_nothing_is_said() -> None:
    view = on_gpu(60, 80, 14, 4)
    assert device_memory(replace(view, uses_gpu=False)) is None
    assert device_memory(replace(view, usage=Usage())) is None
    assert device_memory(replace(view, process=Process())) is None
