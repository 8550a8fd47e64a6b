"""Batches that are taken out of a data set with one index: the same ones, or the single samples as ever."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, default_collate
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from flatout.probe.injections import Injected, samples_at_once
from flatout.probe.injections.samples_at_once import AtOnce

SIZE, BATCH, VALUES = 100, 10, 6


class Rows(Dataset[Any]):
    """Rows of arrays."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.x = rng.random((SIZE, VALUES), dtype=np.float32)
        self.x[3, 2] = np.nan
        self.y = rng.integers(0, 5, SIZE)
        self.tensor = torch.from_numpy(self.x) * 2
        self.words = [f"{n}" for n in range(SIZE)]
        self.square = np.eye(VALUES, dtype=np.float32)
        self.count = np.zeros(SIZE)

    def __len__(self) -> int:
        return SIZE


def rows(code: str) -> Dataset[Any]:
    """Rows with this code in ``__getitem__``."""
    names: dict[str, Any] = {"Rows": Rows, "np": np, "torch": torch, "random": random}
    body = "\n        ".join(code.split("\n"))
    exec(f"class Made(Rows):\n    def __getitem__(self, i):\n        {body}\n", names)
    made: Dataset[Any] = names["Made"]()
    return made


@pytest.fixture
def injected(monkeypatch: pytest.MonkeyPatch) -> Injected:
    monkeypatch.setattr(_MapDatasetFetcher, "fetch", _MapDatasetFetcher.fetch)
    found = Injected('{"samples_at_once": true}')
    samples_at_once.install(found, None)
    return found


def batches(data: Dataset[Any], **options: Any) -> list[Any]:
    torch.manual_seed(0)
    return list(DataLoader(data, BATCH, shuffle=True, **options))


def bits(value: Any) -> Any:
    """What a batch is made of, to the bit."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.stride(), value.numpy().tobytes()
    if isinstance(value, dict):
        return {key: bits(part) for key, part in value.items()}
    return (type(value), [bits(part) for part in value]) if isinstance(value, (list, tuple)) else value


def plain(data: Dataset[Any]) -> list[Any]:
    torch.manual_seed(0)
    order = torch.utils.data.RandomSampler(data)  # type: ignore[arg-type]
    # As DataLoader draws: a seed for the workers first.
    torch.empty((), dtype=torch.int64).random_()
    indices = list(order)
    return [default_collate([data[i] for i in indices[n : n + BATCH]]) for n in range(0, SIZE, BATCH)]


@pytest.mark.parametrize(
    "code",
    [
        "return self.x[i], self.y[i]",
        "return {'x': self.tensor[i], 'y': self.y[i]}",
        "return [torch.tensor(self.x[i]), torch.tensor(self.y[i], dtype=torch.float32)]",
        "return self.x[i] * 2 + 1",
        "user, item = self.x[i].astype(np.float64), self.y[i]\nreturn user, (item, item > 2)",
        "return torch.from_numpy(self.x[i]).float()",
    ],
)
def test_rows_of_arrays_are_taken_at_once(injected: Injected, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, asked = rows(code), []
    original = AtOnce._asked
    monkeypatch.setattr(
        AtOnce, "_asked", lambda self, indices: (asked.append(len(indices)), original(self, indices))[1]
    )
    found = batches(data)
    assert injected.applied == {"samples_at_once": True} and not injected.refused
    assert asked == [BATCH] * (3 + 7)
    assert [bits(batch) for batch in found] == [bits(batch) for batch in plain(data)]


@pytest.mark.parametrize("wrapped", [False, True])
def test_tensor_data_sets_and_subsets_are(injected: Injected, wrapped: bool) -> None:
    x = torch.arange(400.0).reshape(200, 2)
    data: Dataset[Any] = TensorDataset(x[:SIZE], x[:SIZE, 0].long())
    if wrapped:
        data = Subset(Subset(TensorDataset(x, x[:, 0].long()), range(0, 200, 2)), range(SIZE - 1, -1, -1))
    found = batches(data)
    assert injected.applied == {"samples_at_once": True}
    assert [bits(batch) for batch in found] == [bits(batch) for batch in plain(data)]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("return self.words[i], self.x[i]", "uses words"),
        ("return self.x[i] - self.x[i].mean()", "uses mean"),
        ("return self.x[i] if i != 7 else self.x[0]", "branches"),
        (
            "try:\n    return self.x[i] * 2 if i > 95 else self.x[i]\nexcept ValueError:\n    return self.x[i]",
            "branches",
        ),
        ("self.count[i] += 1\nreturn self.x[i]", "writes"),
        ("self.asked = i\nreturn self.x[i]", "writes"),
        ("x = self.x[i]\nx *= 2\nreturn x", "writes"),
        ("return self.x[i] @ self.square", "multiplies matrices"),
        ("return self.x[i] + random.random()", "uses random"),
        ("return self.x[i] + np.random.rand()", "uses random"),
        ("return self.tensor[0]", "another form"),
        ("return {'x': self.x[i], 'name': f'{i}'}", "another form"),
        ("return self.x[i][0]", "at once differ"),
        ("return torch.tensor(int(self.y[i]))", "TypeError"),
    ],
)
def test_what_may_differ_stays_as_it_is(injected: Injected, code: str, why: str) -> None:
    random.seed(1)
    np.random.seed(1)
    found = batches(rows(code))
    assert not injected.applied and why in injected.refused["samples_at_once"]
    random.seed(1)
    np.random.seed(1)
    assert [bits(batch) for batch in found] == [bits(batch) for batch in plain(rows(code))]


def test_a_row_that_differs_later_is_noticed_where_it_is_compared(
    injected: Injected, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = rows("return self.x[i]")
    loaded = iter(DataLoader(data, BATCH))
    for _ in range(4):
        next(loaded)
    assert injected.applied
    monkeypatch.setattr(AtOnce, "_asked", lambda self, indices: self._data_set.x[np.asarray(indices)] + 1)
    fifth = next(loaded)
    assert "at once differ" in injected.refused["samples_at_once"] and not injected.applied
    assert bits(fifth) == bits(default_collate([data[i] for i in range(40, 50)]))


def test_a_data_set_without_attributes_to_look_at_is_left_alone(injected: Injected) -> None:
    class Slots(list):  # type: ignore[type-arg]
        __slots__ = ()

    data: Any = Slots(torch.rand(SIZE, 2))
    assert len(batches(data)) == SIZE // BATCH and injected.refused


@pytest.mark.parametrize(
    "options", [{"collate_fn": lambda samples: torch.stack(samples)}, {"batch_size": None, "shuffle": False}]
)
def test_other_ways_to_make_a_batch_are_left_alone(injected: Injected, options: dict[str, Any]) -> None:
    list(DataLoader(rows("return self.tensor[i]"), **{"batch_size": BATCH, **options}))
    assert "default_collate" in injected.refused["samples_at_once"]


@pytest.mark.slow
def test_in_workers_it_is_the_same(injected: Injected) -> None:
    data = rows("return self.x[i], self.y[i]")
    found = batches(data, num_workers=2)
    assert injected.taken() == {"samples_at_once": True}
    assert [bits(batch) for batch in found] == [bits(batch) for batch in plain(data)]
