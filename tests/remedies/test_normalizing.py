"""Pictures handed over as uint8: where that gains."""

from __future__ import annotations

from typing import Any

from flatout.measure.loader_stats import TransformCost
from flatout.measure.measured_run import MeasuredRun
from flatout.remedies.normalizing import waiting_parts
from tests.diagnose.views import saturated, spread
from tests.remedies.test_remedies import offered

LARGE = (
    TransformCost("ToTensor", 124e-6, 224 * 224, 224 * 224),
    TransformCost("Normalize", 64e-6, 224 * 224, 224 * 224),
)
SMALL = (TransformCost("ToTensor", 25e-6, 1024, 1024), TransformCost("Normalize", 20e-6, 1024, 1024))


def view(parts: tuple[TransformCost, ...], item_s: float, **more: Any) -> MeasuredRun:
    return saturated(cpu_groups={"transform": 0.9, "decode": 0.1}, item_s=spread(item_s), transforms=parts, **more)


def test_small_pictures_gain_on_a_cpu_and_large_ones_on_a_gpu_only() -> None:
    small = offered(view(SMALL, 80e-6))["late_normalize"]
    assert small.title.endswith("a batch at a time") and small.gain is not None and small.gain.predicted > 1.2
    assert "late_normalize" not in offered(view(LARGE, 400e-6))
    large = offered(view(LARGE, 400e-6, uses_gpu=True))["late_normalize"]
    assert large.title.endswith("on the GPU") and large.settings == {"late_normalize": True}


def test_only_a_pipeline_that_ends_with_them_waits() -> None:
    crop, erase = TransformCost("RandomCrop", 1e-5, 1, 1), TransformCost("RandomErasing", 1e-5, 1, 1)
    assert waiting_parts((crop, *SMALL)) == SMALL
    assert waiting_parts((*SMALL, erase)) == ()
    second = tuple(TransformCost(name, 1e-5, 1, 1) for name in ("ToImage", "ToDtype", "Normalize"))
    assert waiting_parts((crop, *second)) == second and waiting_parts((crop, second[0])) == ()
