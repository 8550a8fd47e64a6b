"""Other processes on the cores, on planted views."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flatout.diagnose.causes.machine import crowded_machine
from flatout.diagnose.ranking import judge
from flatout.diagnose.verdict import verdict
from flatout.measure.crowding import Crowding
from flatout.measure.experiments import Experiments
from flatout.predict.context import Context
from flatout.predict.crowded_threads import fewer_threads
from flatout.remedies import propose
from flatout.results import Cause, NotMeasured
from tests.diagnose.views import healthy, remote, small_operators, starved, tried


def crowding(wait_share: float, outside_cores: float = 6.0, part: float = 1.0) -> dict[str, Crowding]:
    return {"crowding": Crowding(outside_cores, part, wait_share, ("stress (pid 8): 6 cores",))}


def test_other_processes_lead_where_the_training_waits_for_their_cores() -> None:
    context = Context.of(healthy(usage=crowding(0.4)))
    causes, _ = judge(context)
    assert causes[0].id == "crowded_machine"
    assert causes[0].share == pytest.approx(0.4)
    assert "stress (pid 8)" in causes[0].evidence[1].text
    assert "6 of 8 cores" in verdict(context, causes)


def test_short_waits_and_small_neighbours_are_no_fault() -> None:
    for usage in (crowding(0.02), crowding(0.4, outside_cores=0.1)):
        assert crowded_machine(Context.of(healthy(usage=usage))) is None


def test_workers_that_wait_for_a_core_hold_up_the_batches() -> None:
    """Batches are awaited 80% of the time, and their fetches wait half of it for a core that others have."""
    answer = crowded_machine(Context.of(starved(runqueue=0.050, usage=crowding(0.0))))
    assert isinstance(answer, Cause)
    assert answer.share == pytest.approx(0.4, abs=0.01)


def test_workers_that_wait_for_the_network_are_not_held_up_by_others() -> None:
    assert crowded_machine(Context.of(remote(usage=crowding(0.0)))) is None


def test_a_wait_that_a_busy_gpu_does_not_notice_costs_nothing() -> None:
    usage = crowding(0.4) | {"device_busy_share": 0.99}
    assert crowded_machine(Context.of(healthy(uses_gpu=True, usage=usage))) is None


def test_without_machine_samples_it_is_not_measured() -> None:
    assert isinstance(crowded_machine(Context.of(healthy())), NotMeasured)


def test_cores_of_its_own_do_not_rest_on_what_others_take() -> None:
    found = propose(context := Context.of(starved(usage=crowding(0.4) | {"other_cores": 2.0})), judge(context)[0])[0]
    bases = {remedy.id: remedy.basis for remedy in found}
    assert "other processes go on" not in bases["cores_of_its_own"]
    assert any("other processes go on" in basis for basis in bases.values())


def test_fewer_threads_are_proposed_where_they_were_faster_beside_others() -> None:
    """Steps took 10 ms in the window, and 4 ms with one thread after it."""
    one = replace(tried(0.1), changed_s=0.004)
    usage = crowding(0.4) | {"other_cores": 1.4}
    view = healthy(cpu=0.001, usage=usage, cores=2, process={"threads": 2})
    context = Context.of(replace(view, experiments=Experiments(tried={"threads=1": one}, steps=8)))
    causes = judge(context)[0]
    found = {remedy.id: remedy for remedy in propose(context, causes)[0]}
    assert found["threads"].cause == causes[0].id == "crowded_machine"
    assert causes[0].share == pytest.approx(0.6, abs=0.03) and "with 1 thread a step took" in causes[0].evidence[0].text
    assert found["threads"].gain.predicted == pytest.approx(10 / 4, rel=0.1)
    assert found["threads"].gain.low < 1.2
    assert "where other processes used the cores" in found["threads"].basis
    assert verdict(context, causes).endswith("waits of its threads take 60% of the time.")


def test_without_steps_of_fewer_threads_the_operators_show_how_long_one_takes() -> None:
    """Two threads compute 1 ms in a step of 10 ms: one would take 3 ms and its part of the cores."""
    usage = crowding(0.5, outside_cores=1.0)
    view = healthy(usage=usage, process={"threads": 2}, cores=2)
    operators = small_operators(0.001, kernels_s=0.001, launching_s=0.002)
    fewer = fewer_threads(Context.of(replace(view, operators=operators)))
    assert fewer is not None and (fewer.count, fewer.step_s) == (1, pytest.approx(0.003))
    assert fewer.part == pytest.approx(0.7, abs=0.01) and fewer.least == 0.0
    busy = replace(view, operators=replace(operators, kernels_s=0.009, launching_s=0.009))
    assert fewer_threads(Context.of(busy)) is None  # one thread would take as long
    alone = replace(view, operators=operators, process=replace(view.process, threads=1))
    assert fewer_threads(Context.of(alone)) is None


def test_processes_that_the_training_started_are_named_as_its_own() -> None:
    own = Crowding(1.8, 1.0, 0.5, ("python (pid 8), which this training started: 1.8 cores",), 1.7)
    context = Context.of(healthy(usage={"crowding": own}))
    causes, _ = judge(context)
    assert causes[0].title == "other processes that this training started use the cores that it waits for"
    assert verdict(context, causes).startswith("Other processes that this training started use 1.8 of 8 cores")
