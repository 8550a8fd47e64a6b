"""What workers cost that each pass starts anew."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flatout.predict.workers import first_workers
from tests.diagnose.views import BATCHES, with_loader, without_workers


@pytest.mark.parametrize(("rebuilt", "removed_s"), [(False, 0.0), (True, -(0.027 + 2 * 0.023) * 12 / BATCHES)])
def test_where_each_pass_makes_its_loader_each_starts_its_own_workers(rebuilt: bool, removed_s: float) -> None:
    view = with_loader(without_workers(), epochs_started=12)
    assert view.loading is not None
    settings = replace(view.loading.settings, rebuilt=rebuilt)
    change = first_workers(replace(view, loading=replace(view.loading, settings=settings)), 2)
    assert change.num_workers == 2 and change.step_removed_s == pytest.approx(removed_s)
