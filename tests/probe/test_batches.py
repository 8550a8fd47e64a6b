"""Samples and bytes of a batch, whatever holds its tensors."""

from __future__ import annotations

from collections import UserDict
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


class MadeUp:
    """Any attribute is looked up in a dictionary, which raises another error than getattr expects."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return self.data[name]


class Hostile(dict[str, Any]):
    def values(self) -> Any:
        raise KeyboardInterrupt


class Failing(UserDict[str, Any]):
    def values(self) -> Any:
        raise RuntimeError("no")


def test_objects_of_the_users_that_raise_are_no_fault() -> None:
    for batch in (MadeUp(), Failing(image=IMAGES), [MadeUp()]):
        assert samples_in(batch) == 0
        assert weigh(batch) == (0, [])
    hostile = Hostile(image=IMAGES)
    assert samples_in(hostile) == 6
    assert weigh(hostile)[0] == 6 * 48 * 4


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_have_bytes_and_no_shape() -> None:
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
    assert samples_in({"a": nested}) in (0, 2)
    assert weigh({"a": nested, "b": LABELS}) == (20 + 24, ["float32 nested", "float32 [6]"])


@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_sparse_tensor_weighs_what_it_holds() -> None:
    dense = torch.eye(100)
    assert weigh(dense.to_sparse())[0] == 100 * (2 * 8 + 4)
    assert weigh(dense.to_sparse_csr())[0] == 101 * 8 + 100 * (8 + 4)
    assert weigh(dense.to_sparse_csc())[0] == 101 * 8 + 100 * (8 + 4)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_and_the_programs_modes_are_left_in_peace() -> None:
    class Counts(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        asked = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            Counts.asked += 1
            return func(*args, **(kwargs or {}))

    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    assert samples_in([nested]) == 0
    batch = [torch.ones(4, 2), torch.ones(4)]
    with Counts():
        assert samples_in(batch) == 4 and weigh(batch)[0] == 48
        assert Counts.asked == 0
