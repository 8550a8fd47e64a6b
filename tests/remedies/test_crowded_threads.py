"""Fewer threads beside other processes: when they are offered."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from flatout.measure.crowding import Crowding
from flatout.predict.context import Context
from flatout.remedies import step_experiments
from tests.diagnose.views import healthy, small_operators
from tests.remedies.test_remedies import offered


def test_on_a_crowded_machine_as_many_threads_as_it_has_cores_left_are_offered() -> None:
    """Where the steps had no time to try it."""
    crowding = Crowding(7.3, 0.9, 0.5, ())
    operators = small_operators(0.001, kernels_s=0.001, launching_s=0.001)
    run = replace(healthy(usage={"crowding": crowding}, process={"threads": 2}, cores=8), operators=operators)
    remedy = offered(run)["threads"]
    assert (remedy.title, remedy.settings, remedy.cause) == ("compute with 1 thread", {"threads": 1}, "crowded_machine")
    assert remedy.gain.low <= 1.0 and remedy.gain.predicted == pytest.approx(2.0, abs=0.05)  # as fast as workers fetch
    assert "threads" not in offered(replace(run, process=replace(run.process, threads=1)))


@pytest.mark.parametrize(("alone_s", "offers"), [(0.46, False), (0.75, True)])
def test_fewer_threads_are_no_remedy_where_more_is_lost_on_a_quiet_machine(
    monkeypatch: pytest.MonkeyPatch, alone_s: float, offers: bool
) -> None:
    """A step takes 0.85 s in the window, and 0.756 s with one thread after it."""
    run = healthy(usage={"crowding": Crowding(7.3, 0.9, 0.5, ())}, process={"threads": 2}, cores=8)
    now_s = Context.of(run).model.now.step_s
    tried = SimpleNamespace(unchanged_s=alone_s / 0.85 * now_s)
    fewer = SimpleNamespace(count=1, part=0.11, least=0.0, step_s=0.756 / 0.85 * now_s, tried=tried)
    monkeypatch.setattr(step_experiments, "fewer_threads", lambda context: fewer)
    assert ("threads" in offered(run)) is offers
