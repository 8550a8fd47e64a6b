"""Batches are seen wherever an iterator of torch gives them, however it came about."""

from __future__ import annotations

import pytest

from flatout.measure.ledger import ledger_of
from flatout.measure.training import find_training
from flatout.probe import events
from flatout.record import of_kinds
from tests.probe.parts import bare_script, counts, probed_script, within
from tests.probe.recorded import Recorded


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return probed_script(tmp_path_factory.mktemp("probed"), "loaders_of_their_own.py")


@pytest.mark.parametrize(("part", "batches"), [("endless", 6), ("endless with workers", 6), ("built anew", 6)])
def test_every_batch_is_seen(probed: Recorded, part: str, batches: int) -> None:
    assert counts(within(probed, part), events.BATCH_WAIT, events.BACKWARD) == (batches, batches)


def test_a_kept_iterator_counts_its_batches_on_and_is_begun_once(probed: Recorded) -> None:
    found = within(probed, "endless")
    assert of_kinds(found, events.BATCH_WAIT)["a"].tolist() == list(range(6))
    assert counts(found, events.ITER_START) == (1,)


def test_workers_of_a_kept_iterator_are_known(probed: Recorded) -> None:
    waits = of_kinds(within(probed, "endless with workers"), events.BATCH_WAIT)
    assert {entry["loader"] for entry in probed.main.names.workers} == set(waits["arg"].tolist())


def test_a_loader_that_is_built_anew_is_marked_so_and_others_are_not(probed: Recorded) -> None:
    names = probed.main.names
    ids = {
        part: set(of_kinds(within(probed, part), events.BATCH_WAIT)["arg"].tolist())
        for part in ("endless", "built anew")
    }
    assert [bool(names.get(id, "loader").get("rebuilt")) for id in ids["endless"]] == [False]
    assert [bool(names.get(id, "loader").get("rebuilt")) for id in ids["built anew"]] == [True]


@pytest.mark.slow
def test_the_losses_are_those_without_the_probe(tmp_path, probed: Recorded) -> None:
    assert bare_script(tmp_path, "loaders_of_their_own.py").out == probed.out


def test_steps_and_samples_are_those_of_the_loaders(probed: Recorded) -> None:
    assert probed.run is not None
    training = find_training(probed.run)
    assert training is not None and training.loader is not None
    ledger = ledger_of(probed.run)
    assert ledger is not None and ledger.steps.samples > 0
