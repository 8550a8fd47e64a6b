"""Copies of batches, and batches joined to themselves."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch

from flatout.probe.kept_batches import NotDoubled, bytes_of, copied, doubled_batch

Pair = collections.namedtuple("Pair", "points labels")


def tensors(rows: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(2.0 * rows).reshape(rows, 2), torch.arange(rows)


@pytest.mark.parametrize(
    "batch",
    [
        tensors(),
        list(tensors()),
        Pair(*tensors()),
        {"x": tensors()[0], "deep": {"y": [tensors()[1]]}},
        collections.OrderedDict(x=tensors()[0]),
        collections.UserDict(x=tensors()[0]),
    ],
)
def test_a_copy_is_of_the_same_kind_and_shares_no_memory(batch: Any) -> None:
    made = copied(batch)
    assert type(made) is type(batch)
    first, original = (next(iter(one.values())) if hasattr(one, "values") else one[0] for one in (made, batch))
    first.fill_(7)
    assert not original.eq(7).all()


def test_the_layout_of_a_tensor_is_copied_too() -> None:
    pictures = torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)
    assert copied(pictures).is_contiguous(memory_format=torch.channels_last)
    assert doubled_batch(pictures, None).is_contiguous(memory_format=torch.channels_last)


def test_a_doubled_batch_holds_each_sample_twice() -> None:
    points, labels = tensors()
    made = doubled_batch(Pair(points, labels), None)
    assert isinstance(made, Pair)
    assert made.points.tolist() == [*points.tolist(), *points.tolist()]
    assert made.labels.tolist() == [0, 1, 2, 0, 1, 2]


def test_lists_of_samples_are_doubled_as_lists() -> None:
    pictures = [torch.zeros(3, side, 5) for side in (5, 6, 2, 5)]
    boxes = [{"boxes": torch.zeros(count, 4)} for count in (1, 4, 2, 3)]
    made = doubled_batch((pictures, boxes), 4)
    assert [len(part) for part in made] == [8, 8]
    assert made[1][5]["boxes"].shape == (4, 4)
    named = doubled_batch({"x": tensors()[0], "names": ["a", "b", "c"], "none": None}, None)
    assert named["names"] == ["a", "b", "c"] * 2 and named["none"] is None


def test_two_tensors_in_a_batch_of_two_are_parts_and_not_samples() -> None:
    made = doubled_batch(tensors(2), 2)
    assert len(made) == 2 and made[0].shape == (4, 2)


@pytest.mark.parametrize(
    ("batch", "because"),
    [
        ({"x": torch.zeros(3, 2), "count": 3}, "a batch holds a part of type int"),
        ({"x": torch.zeros(3, 2), "scale": torch.tensor(1.0)}, "holds a tensor of shape"),
        ((torch.zeros(3, 2), torch.zeros(2, 7)), "a batch of 3 samples holds a tensor of shape"),
        ((torch.zeros(3, 2), []), "a batch holds an empty list"),
        (torch.zeros(3, 2).to_sparse(), "holds a tensor of shape"),
        (([torch.zeros(3, 5, 5)] * 3, torch.zeros(3)), "a list of 3 tensors may hold samples or parts"),
        (object(), "a batch holds a part of type object"),
    ],
)
def test_what_cannot_be_joined_is_refused_with_the_reason(batch: Any, because: str) -> None:
    with pytest.raises(NotDoubled, match=because):
        doubled_batch(batch, 3)


def test_the_bytes_of_all_tensors_are_counted() -> None:
    assert bytes_of({"x": torch.zeros(3, 2), "deep": [torch.zeros(4, dtype=torch.uint8), "text"]}) == 28
