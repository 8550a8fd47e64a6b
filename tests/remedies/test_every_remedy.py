"""Every remedy of the catalogue: a run that it helps, and one that it cannot help."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flatout.diagnose.ranking import judge
from flatout.measure.input_functions import InputFunction
from flatout.predict import rate_model, whatif
from flatout.predict.context import Context
from flatout.remedies import REMEDIES, propose
from flatout.remedies.proposal import RemedySpec
from flatout.results import Cause
from tests.remedies.remedy_runs import BETWEEN_STEPS, RUNS, UNCERTAIN, own_input


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Narrower sampling: the predicted gain stays, the interval gets coarser."""
    monkeypatch.setattr(rate_model, "RESAMPLES", 20)
    monkeypatch.setattr(whatif, "STEPS", 400)
    monkeypatch.setattr(whatif, "SEEDS", 2)


def test_the_table_names_every_remedy() -> None:
    assert sorted(RUNS) == sorted(spec.id for spec in REMEDIES)


@pytest.mark.parametrize("id", RUNS)
def test_it_is_offered_with_a_gain_where_it_helps(id: str) -> None:
    context = Context.of(RUNS[id][0]())
    offered = {remedy.id: remedy for remedy in propose(context, judge(context)[0])[0]}
    assert id in offered, list(offered)
    gain = offered[id].gain
    assert gain.low <= gain.predicted <= gain.high
    assert (gain.high if id in UNCERTAIN else gain.predicted) > 1.03


@pytest.mark.parametrize("spec", REMEDIES, ids=lambda spec: spec.id)
def test_it_promises_nothing_where_it_cannot_help(spec: RemedySpec) -> None:
    """Even when a cause that it answers is taken for found, with a share of 30%."""
    context = Context.of(RUNS[spec.id][1]())
    for id in spec.causes:
        cause = Cause(id, "forced", 0.0 if spec.id in BETWEEN_STEPS else 0.3, 0.9, ())
        proposal = spec.propose(context, cause)
        if proposal is not None:
            gain = proposal.gain or context.model.gain(proposal.change, proposal.least, proposal.most)
            assert gain.predicted <= 1.02


def test_input_without_a_loader_is_memoized_up_to_the_room_that_there_is() -> None:
    functions = (
        InputFunction("/home/me/train.py", "get_batch", 1.0, 1.0, (0.9, 0.0), 1.0),
        InputFunction("/home/me/train.py", "features", 0.9, 0.0, (0.0, 0.0), 2.0),
        InputFunction("/home/me/train.py", "rare", 0.1, 0.0, (0.0, 0.0), 3.0),
    )
    view = replace(own_input("transform"), input_functions=functions)
    view = replace(view, usage=replace(view.usage, available_bytes=8 << 30))
    context = Context.of(view)
    found = {remedy.id: remedy for remedy in propose(context, judge(context)[0])[0]}["samples_memoized"]
    assert found.settings["memoize"].split(",")[0].endswith("train.py:get_batch")
    assert len(found.settings["memoize"].split(",")) == 2 and found.memory_bytes is None
    assert found.gain.predicted == pytest.approx(1 / (1 - 0.9 * 0.9 * 0.4)) and found.gain.low < 1.0
    rare = Context.of(replace(view, input_functions=functions[2:]))
    assert "samples_memoized" not in {remedy.id for remedy in propose(rare, judge(rare)[0])[0]}
