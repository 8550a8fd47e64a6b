"""Batches that are taken out of a data set with one index: the same ones, or the single samples as ever."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, default_collate
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from flatout.probe.injections import Injected, collated, samples_at_once

SIZE, BATCH, VALUES = 100, 10, 6


class Rows(Dataset[Any]):
    """Rows of arrays, by a function of (data set, index)."""

    def __init__(self, sample: Callable[[Any, Any], Any]) -> None:
        rng = np.random.default_rng(0)
        self.x = rng.random((SIZE, VALUES), dtype=np.float32)
        self.x[3, 2] = np.nan
        self.y = rng.integers(0, 5, SIZE)
        self.tensor = torch.from_numpy(self.x) * 2
        self.words = [f"{n}" for n in range(SIZE)]
        self.asked = 0
        self.kept: dict[Any, Any] = {}
        self.sample = sample

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: Any) -> Any:
        return self.sample(self, index)


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
    "sample",
    [
        lambda self, i: (self.x[i], self.y[i]),
        lambda self, i: {"x": self.tensor[i], "y": self.y[i]},
        lambda self, i: [torch.tensor(self.x[i]), torch.tensor(self.y[i], dtype=torch.float32)],
        lambda self, i: self.x[i] * 2 + 1,
        lambda self, i: (self.x[i].astype(np.float64), (self.y[i], self.y[i] > 2)),
        lambda self, i: self.x[i][..., ::-1].copy(),
    ],
)
def test_rows_of_arrays_are_taken_at_once(injected: Injected, sample: Callable[[Any, Any], Any]) -> None:
    asked: list[Any] = []

    def counted(self: Any, index: Any) -> Any:
        asked.append(np.ndim(index))
        return sample(self, index)

    found = batches(Rows(counted))
    assert injected.applied == {"samples_at_once": True} and not injected.refused
    assert asked.count(0) == 3 * BATCH + 7 and asked.count(1) == 3 * 2 + 7
    assert [bits(batch) for batch in found] == [bits(batch) for batch in plain(Rows(sample))]


@pytest.mark.parametrize("wrapped", [False, True])
def test_tensor_data_sets_and_subsets_are(injected: Injected, wrapped: bool) -> None:
    x = torch.arange(400.0).reshape(200, 2)
    data: Dataset[Any] = TensorDataset(x[:SIZE], x[:SIZE, 0].long())
    if wrapped:
        data = Subset(Subset(TensorDataset(x, x[:, 0].long()), range(0, 200, 2)), range(SIZE - 1, -1, -1))
    found = batches(data)
    assert injected.applied == {"samples_at_once": True}
    assert [bits(batch) for batch in found] == [bits(batch) for batch in plain(data)]


def counts(self: Any, i: Any) -> Any:
    self.asked += 1
    return self.x[i]


def keeps(self: Any, i: Any) -> Any:
    self.kept[str(i)] = True
    return self.x[i]


def swallows(self: Any, i: Any) -> Any:
    try:
        return self.words[i], self.x[i]
    except TypeError:
        return "", self.x[0]


@pytest.mark.parametrize(
    ("sample", "why"),
    [
        (lambda self, i: (self.words[i], self.x[i]), "TypeError"),
        (lambda self, i: self.x[i] - self.x[i].mean(), "at once differ"),
        (lambda self, i: self.x[i].max(), "another form"),
        (lambda self, i: self.x[i] if i != 7 else self.x[0], "ValueError"),
        (lambda self, i: self.tensor[0], "another form"),
        (lambda self, i: self.x[i] + random.random(), "drawn at random"),
        (lambda self, i: self.x[i] + np.random.rand(), "drawn at random"),
        (lambda self, i: self.x[i] + float(torch.rand(1)), "drawn at random"),
        (lambda self, i: {"x": self.x[i], "name": f"{i}"}, "another form"),
        (swallows, "another form"),
        (counts, "changes as it is asked"),
        (keeps, "changes as it is asked"),
    ],
)
def test_what_differs_stays_as_it_is(injected: Injected, sample: Callable[[Any, Any], Any], why: str) -> None:
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    found = batches(Rows(sample))
    assert not injected.applied and why in injected.refused["samples_at_once"]
    random.seed(1)
    np.random.seed(1)
    if "random" not in why:
        assert [bits(batch) for batch in found] == [bits(batch) for batch in plain(Rows(sample))]


def test_random_numbers_go_on_as_without_it(injected: Injected, monkeypatch: pytest.MonkeyPatch) -> None:
    def sample(self: Any, i: Any) -> Any:
        return self.x[i] + np.float32(random.random()) + np.random.rand() + torch.rand(1).numpy()

    def drawn() -> list[Any]:
        random.seed(1)
        np.random.seed(1)
        return [bits(batch) for batch in batches(Rows(sample))]

    with_it = drawn()
    assert injected.refused
    monkeypatch.setattr(collated, "_why_not", lambda fetcher: "off")
    assert drawn() == with_it


def test_a_row_that_differs_later_is_noticed_where_it_is_compared(injected: Injected) -> None:
    def sample(self: Any, i: Any) -> Any:
        made = self.x[i] * 1
        if np.ndim(i):  # as if rows were computed in another way
            made[4 * 7919 % BATCH] += 1 if self.late else 0
        return made

    data = Rows(sample)
    data.late = False  # type: ignore[attr-defined]
    loaded = iter(DataLoader(data, BATCH))
    for _ in range(4):
        next(loaded)
    assert injected.applied
    data.late = True  # type: ignore[attr-defined]
    fifth = next(loaded)
    assert "at once differ" in injected.refused["samples_at_once"] and not injected.applied
    data.late = False  # type: ignore[attr-defined]
    assert bits(fifth) == bits(default_collate([data[i] for i in range(40, 50)]))


@pytest.mark.parametrize(
    "options", [{"collate_fn": lambda samples: torch.stack(samples)}, {"batch_size": None, "shuffle": False}]
)
def test_other_ways_to_make_a_batch_are_left_alone(injected: Injected, options: dict[str, Any]) -> None:
    list(DataLoader(Rows(lambda self, i: self.tensor[i]), **{"batch_size": BATCH, **options}))
    assert "default_collate" in injected.refused["samples_at_once"]


@pytest.mark.slow
def test_in_workers_it_is_the_same(injected: Injected) -> None:
    data = Rows(lambda self, i: (self.x[i], self.y[i]))
    found = batches(data, num_workers=2)
    assert injected.taken() == {"samples_at_once": True}
    assert [bits(batch) for batch in found] == [bits(batch) for batch in plain(data)]
