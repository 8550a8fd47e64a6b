"""Workers of every kind: the same samples, one record each, and who made which batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from flatout.probe import events
from flatout.record import of_kinds
from tests.probe.parts import bare_script, counts, probed_script, span, within
from tests.probe.recorded import Recorded

pytestmark = pytest.mark.slow

METHODS = ["fork", *(pytest.param(method, marks=pytest.mark.slow) for method in ("spawn", "forkserver"))]


@pytest.fixture(scope="module", params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Recorded]:
    """Gives the record of workers that were started by a method; each is made once."""
    return cache(lambda method: probed_script(tmp_path_factory.mktemp(method), "worker_loops.py", method))


@pytest.fixture
def probed(recorded: Callable[[str], Recorded], method: str) -> Recorded:
    return recorded(method)


@pytest.fixture
def forked(recorded: Callable[[str], Recorded]) -> Recorded:
    return recorded("fork")


def worker_batches(ran: Recorded, part: str, kind: int) -> list[int]:
    """Batch indices of one kind of event, over all workers; what else a queue carries has the index -1."""
    return sorted(int(a) for worker in ran.workers for a in of_kinds(within(ran, part, worker), kind)["a"] if a >= 0)


def test_samples_of_random_workers_are_the_same_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, method: str, probed: Recorded
) -> None:
    bare = bare_script(tmp_path_factory.mktemp("bare"), "worker_loops.py", method)
    assert len(bare.out.splitlines()) >= 12
    assert "nan" not in bare.out
    assert probed.out == bare.out


def test_persistent_workers_keep_one_record_each_over_two_epochs(probed: Recorded, method: str) -> None:
    assert counts(within(probed, "persistent"), events.BATCH_WAIT, events.ITER_START) == (12, 2)
    first = next(entry for entry in probed.main.names.workers if entry["iteration"] == 0)
    workers = [worker for worker in probed.workers if worker.pid in first["pids"]]
    assert sorted(worker.worker for worker in workers if worker.worker is not None) == [0, 1]
    for worker in workers:
        made = of_kinds(worker.events, events.FETCH)
        assert len(made) == 6
        assert counts(worker.events, events.COLLATE, events.WORKER_START) == (6, 1)
        assert made["b"].tolist() == [4] * 6
        assert worker.info["exit"] == {"code": 0}
    loader = probed.main.names.get(int(first["loader"]), "loader")
    assert (loader["num_workers"], loader["start_method"]) == (2, method)
    assert (loader["persistent_workers"], loader["prefetch_factor"]) == (True, 3)


def test_every_batch_is_fetched_once_before_it_is_waited_for(probed: Recorded) -> None:
    assert worker_batches(probed, "persistent", events.FETCH) == sorted([*range(6)] * 2)
    assert worker_batches(probed, "persistent", events.PUT) == sorted([*range(6)] * 2)
    arrived = of_kinds(within(probed, "persistent"), events.BATCH_WAIT)
    begun = np.sort(np.concatenate([of_kinds(worker.events, events.FETCH)["start"] for worker in probed.workers]))
    assert (begun[:12] < arrived["start"] + arrived["duration"]).all()


def test_the_wait_names_the_worker_that_made_the_batch(probed: Recorded) -> None:
    waits = of_kinds(within(probed, "persistent"), events.BATCH_WAIT)
    # Batches go round between the two workers, and are handed over in order.
    assert [(b >> 32 & 0xFFFF) - 1 for b in waits["b"].tolist()] == [0, 1] * 6


def test_new_workers_each_epoch_have_new_records(forked: Recorded) -> None:
    start, end = span(forked, "new workers each epoch")
    started = [w for w in forked.workers if start <= w.of_kinds(events.WORKER_START)["start"][0] + 10**7 <= end]
    assert Counter(worker.worker for worker in started) == {0: 2, 1: 2}
    set_up = np.concatenate([w.of_kinds(events.WORKER_START) for w in started])
    assert (set_up["b"] >= 0.2e9).all()  # the user's worker_init_fn
    assert (set_up["duration"] >= set_up["b"]).all()
    lists = [entry["pids"] for entry in forked.main.names.workers]
    assert all(len(set(pids)) == 2 for pids in lists)
    assert {w.pid for w in started} <= {pid for pids in lists for pid in pids}


@pytest.mark.parametrize(("part", "batches"), [("new workers each epoch", 12), ("any order", 6), ("left early", 2)])
def test_each_batch_that_arrives_is_one_wait(forked: Recorded, part: str, batches: int) -> None:
    assert counts(within(forked, part), events.BATCH_WAIT, events.FORWARD, events.BACKWARD) == (batches,) * 3


def test_a_loop_that_is_left_ends_its_workers_and_says_so(forked: Recorded) -> None:
    ended = of_kinds(forked.main.events, events.ITER_END)
    start, _ = span(forked, "left early")
    # The iterator goes when nothing refers to it any more, which is before the next part ends.
    assert ((ended["start"] >= start) & (ended["start"] <= span(forked, "iterable")[1])).any()
    assert all(worker.end_ns is not None for worker in forked.workers)


def test_batches_in_any_order_are_of_an_unknown_worker(forked: Recorded) -> None:
    wait = of_kinds(within(forked, "any order"), events.BATCH_WAIT)
    loader = forked.main.names.get(int(wait[0]["arg"]), "loader")
    if loader["in_order"] is None:
        pytest.skip("this torch has no in_order")
    assert loader["in_order"] is False
    assert {(b >> 32 & 0xFFFF) - 1 for b in wait["b"].tolist()} == {-1}


def test_workers_of_a_stream_record_their_own_share(forked: Recorded) -> None:
    made = [of_kinds(within(forked, "iterable", worker), events.PUT) for worker in forked.workers]
    # Eight samples each make two batches; the hand-over that says "no more" has no batch.
    assert sum(len(puts) for puts in made) >= 4
    waits = of_kinds(within(forked, "iterable"), events.BATCH_WAIT)
    assert [b & 0xFFFFFFFF for b in waits["b"].tolist()] == [4] * 4


def test_the_feeder_thread_of_a_worker_is_told_apart_from_the_fetching_one(forked: Recorded) -> None:
    worker = next(worker for worker in forked.workers if len(worker.of_kinds(events.SERIALIZE)))
    assert set(worker.of_kinds(events.FETCH)["thread"].tolist()) == {0}
    assert 0 not in worker.of_kinds(events.SERIALIZE)["thread"].tolist()
    assert (worker.of_kinds(events.SERIALIZE)["a"] > 0).all()
    assert len(forked.main.of_kinds(events.DESERIALIZE)) >= len(forked.main.of_kinds(events.BATCH_WAIT))
