"""Which data sets return what their pipelines make, and do nothing else with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch.utils.data import ConcatDataset, Subset
from torchvision import datasets

from flatout.probe.handed_over import NotHandedOver, calls_handed_over


class Pipeline:
    def __call__(self, picture: Any) -> Any:
        return picture


class Data:
    kept: Any = None
    other = staticmethod(str)

    def __init__(self) -> None:
        self.transform = Pipeline()

    def __len__(self) -> int:
        return 1


def data(get: Callable[..., Any]) -> Any:
    return type("Some", (Data,), {"__getitem__": get})()


def is_pipeline(value: Any) -> bool:
    return isinstance(value, Pipeline)


GLOBAL = Pipeline()


def at_once(self, i):
    return self.transform(i), i


def in_a_dictionary(self, i):
    made = {"picture": self.transform(i), "label": i}
    return made  # noqa: RET504


def only_if_there_is_one(self, i):
    label = i
    if self.transform is not None:
        i = self.transform(i)
    return i, label


def twice(self, i):
    one, other = i, i
    one = self.transform(one)
    other = GLOBAL(other)
    return [one, other], i


def by_a_choice(self, i):
    return (self.transform(i) if self.transform else i), i


@pytest.mark.parametrize("get", [at_once, in_a_dictionary, only_if_there_is_one, twice, by_a_choice])
def test_returned_and_nothing_else(get: Callable[..., Any]) -> None:
    lines = calls_handed_over(data(get), is_pipeline)[get.__code__]
    source = __import__("inspect").getsourcelines(get)
    called = {source[1] + n for n, line in enumerate(source[0]) if "transform(" in line or "GLOBAL(" in line}
    assert lines == called


def changed(self, i):
    made = self.transform(i)
    made += 1
    return made


def indexed(self, i):
    made = self.transform(i)
    made[0] = 1
    return made


def asked_for_its_type(self, i):
    made = self.transform(i)
    if type(made) is int:
        return made, 1
    return made, 0


def passed_on(self, i):
    return self.other(self.transform(i))


def kept(self, i):
    self.kept = self.transform(i)
    return self.kept


def kept_by_a_function(self, i):
    later = lambda: made  # noqa: E731
    made = self.transform(i)
    self.kept = later
    return made


def returned_by_a_function(self, i):
    def make():
        return self.transform(i)

    return make() + 1


def in_a_loop(self, i):
    made = i
    for _ in range(2):
        made = self.transform(made)
    return made


def walked(self, i):
    return [one for one in self.transform(i)]  # noqa: C416


def one_of_two(self, i):
    return self.transform(i), self.transform(i).mean()


def joined(self, i):
    a, b = self.transform(i)
    return a, b


def in_a_global(self, i):
    global made_last
    made_last = self.transform(i)
    return made_last


@pytest.mark.parametrize(
    "get",
    [
        in_a_global,
        changed,
        indexed,
        asked_for_its_type,
        passed_on,
        kept,
        kept_by_a_function,
        returned_by_a_function,
        in_a_loop,
        walked,
        one_of_two,
        joined,
    ],
)
def test_anything_else_is_refused(get: Callable[..., Any]) -> None:
    with pytest.raises(NotHandedOver, match="does more with its pictures than to return them"):
        calls_handed_over(data(get), is_pipeline)


def none_called(self, i):
    return i


def test_what_cannot_be_judged_is_refused() -> None:
    with pytest.raises(NotHandedOver, match="none_called calls no Compose"):
        calls_handed_over(data(none_called), is_pipeline)
    scope: dict[str, Any] = {}
    exec("def get(self, i):\n    return self.transform(i)", scope)
    with pytest.raises(NotHandedOver, match="the source of get was not found"):
        calls_handed_over(data(scope["get"]), is_pipeline)
    with pytest.raises(NotHandedOver, match="has no __getitem__ of its own"):
        calls_handed_over([1, 2], is_pipeline)
    batched = data(at_once)
    type(batched).__getitems__ = lambda self, indices: [self[i] for i in indices]
    with pytest.raises(NotHandedOver, match="that reads one sample"):
        calls_handed_over(batched, is_pipeline)


def test_parts_and_concatenations_are_looked_through() -> None:
    both: Any = ConcatDataset([Subset(data(at_once), [0]), data(twice)])  # type: ignore[list-item]
    both = Subset(both, [0])
    assert set(calls_handed_over(both, is_pipeline)) == {at_once.__code__, twice.__code__}


def test_data_sets_of_torchvision_return_their_pictures() -> None:
    for kind in (datasets.CIFAR10, datasets.MNIST, datasets.ImageFolder, datasets.FakeData, datasets.SVHN):
        one: Any = kind.__new__(kind)
        one.transform = Pipeline()
        assert calls_handed_over(one, is_pipeline)
