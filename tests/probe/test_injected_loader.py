"""Settings of a DataLoader, as they are put into one that the script has made."""

from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, TensorDataset

from flatout.probe.injections import loader as injections

DATA = TensorDataset(torch.arange(24.0))


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(4))


class Injected:
    """Stands in for the probe's own: settings in, what took effect or was refused out."""

    def __init__(self, **settings: Any) -> None:
        self.wanted, self.applied, self.refused = settings, [], dict[str, str]()  # type: ignore[var-annotated]

    def get(self, name: str) -> Any:
        return self.wanted.get(name)

    def done(self, name: str) -> None:
        self.applied.append(name)

    def refuse(self, name: str, why: str) -> None:
        self.refused[name] = why


def put(loader: DataLoader[Any], **settings: Any) -> Injected:
    injected = Injected(**settings)
    injections._set_all(loader, injected)
    return injected


def test_settings_of_workers_are_set() -> None:
    loader = DataLoader(DATA, 4, num_workers=2)
    settings = {
        "num_workers": 3, "prefetch_factor": 5, "persistent_workers": True, "in_order": False, "start_method": "spawn",
        "worker_threads": 1,
    }  # fmt: skip
    injected = put(loader, **settings)
    assert set(injected.applied) == set(settings) and injected.refused == {}
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers) == (3, 5, True)
    assert loader.in_order is False and loader.multiprocessing_context.get_start_method() == "spawn"


def test_without_workers_their_settings_are_refused() -> None:
    names = ("prefetch_factor", "persistent_workers", "in_order", "start_method", "worker_threads")
    injected = put(DataLoader(DATA, 4), **dict.fromkeys(names, 1))
    assert (
        injected.refused == dict.fromkeys(names, "there are no workers: set num_workers too") and not injected.applied
    )


@pytest.mark.parametrize("loader", [DataLoader(DATA, 4, num_workers=2)], ids=["two workers"])
def test_no_workers_take_their_settings_away(loader: DataLoader[Any]) -> None:
    put(loader, num_workers=0)
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers) == (0, None, False)
    assert [len(batch[0]) for batch in loader] == [4] * 6


def test_a_batch_size_reaches_the_sampler_and_a_sampler_of_the_users_own_refuses() -> None:
    loader = DataLoader(DATA, 4)
    put(loader, batch_size=8)
    assert [len(batch[0]) for batch in loader] == [8, 8, 8]

    class Own(BatchSampler):
        pass

    own = DataLoader(DATA, batch_sampler=Own(SequentialSampler(range(24)), 4, drop_last=False))
    assert put(own, batch_size=8).refused == {"batch_size": "batches are made by Own"}


def test_workers_for_a_stream_and_pinned_memory_without_a_gpu_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refused = put(DataLoader(Stream()), num_workers=2, pin_memory=True).refused
    assert refused["num_workers"] == "an iterable data set does not say how workers share it"
    assert refused["pin_memory"] == "there is no GPU to pin memory for"


def test_a_torch_without_the_setting_says_since_when_there_is_one() -> None:
    loader = DataLoader(DATA, 4, num_workers=2)
    del loader.__dict__["in_order"]
    assert put(loader, in_order=False).refused == {"in_order": "this torch has no in_order: 2.6 or newer has"}
