"""Samples and bytes of a batch, whatever holds its tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from flatout.probe.batches import samples_in, weigh  # noqa: E402


@dataclass
class Parts:
    path: list[str] = field(default_factory=list)
    image: Any = None
    label: Any = None


IMAGES, LABELS = torch.zeros(6, 3, 4, 4), torch.zeros(6)


@pytest.mark.parametrize(
    "batch",
    [
        IMAGES,
        [IMAGES, LABELS],
        (IMAGES, LABELS),
        {"name": "a", "image": IMAGES},
        Parts(["a"] * 6, IMAGES, LABELS),
        Parts(image=IMAGES),
        [{"image": IMAGES}],
    ],
)
def test_samples_are_counted_in_any_holder(batch: Any) -> None:
    assert samples_in(batch) == 6


def test_a_batch_without_tensors_has_no_samples() -> None:
    assert samples_in(object()) == 0
    assert samples_in({}) == 0
    assert samples_in([]) == 0
    assert samples_in(Parts()) == 0


def test_bytes_of_a_dataclass_are_those_of_its_tensors() -> None:
    size, layout = weigh(Parts(["a"], IMAGES, LABELS))
    assert size == (6 * 48 + 6) * 4
    assert layout == ["float32 [6, 3, 4, 4]", "float32 [6]"]


def test_attributes_that_raise_are_not_asked_for() -> None:
    @dataclass
    class Guarded(Parts):
        def __getattribute__(self, name: str) -> Any:
            if name in ("path", "label"):
                raise ValueError(name)
            return super().__getattribute__(name)

    batch = Guarded.__new__(Guarded)
    batch.__dict__["image"] = IMAGES
    assert samples_in(batch) == 6
    assert weigh(batch)[0] == 6 * 48 * 4
