"""Modules and optimizers are found among all objects, whatever types there are."""

from __future__ import annotations

import gc
import sys

import pytest
import torch

from flatout.probe import live_objects


class Meta(type):
    """Its types cannot be hashed."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(cls, other: object) -> bool:
        return cls is other


@pytest.mark.parametrize("odd", [False, True])
def test_modules_and_optimizers_are_found(odd: bool) -> None:
    kept = Meta("Odd", (), {"__slots__": ("__dict__",)})() if odd else None
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters())
    assert sum(module is net for module in live_objects.modules()) == 1
    assert any(one is optimizer for one in live_objects.optimizers())
    assert (kept is not None) is odd


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_compiled_modules_are_left_out() -> None:
    scripted = torch.jit.script(torch.nn.Linear(2, 2))
    assert not any(module is scripted for module in live_objects.modules())


def test_nothing_is_audited_for_each_object() -> None:
    audited: list[str] = []
    counting = True

    def hook(event: str, arguments: object) -> None:
        if counting:
            audited.append(event)

    sys.addaudithook(hook)
    live_objects.modules()
    counting = False
    assert len(audited) < 100


def test_what_was_set_aside_from_collections_is_found_and_stays_so() -> None:
    net = torch.nn.Linear(2, 2)
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        assert any(one is net for one in live_objects.modules())
        assert gc.get_freeze_count() >= frozen - 100 and gc.isenabled()
    finally:
        gc.unfreeze()
    assert not gc.get_freeze_count()
    assert any(one is net for one in live_objects.modules())
    assert not gc.get_freeze_count()
