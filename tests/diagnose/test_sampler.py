"""The sampler's time: apart from the fetches, the hand-over and the start of an epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flatout.diagnose.causes.host import epoch_start
from flatout.diagnose.causes.queue import sampler
from flatout.diagnose.ranking import judge
from flatout.diagnose.verdict import verdict
from flatout.measure.build import build_view
from flatout.measure.measured_run import MeasuredRun
from flatout.predict.context import Context
from flatout.probe import events as kinds
from flatout.record import load_run
from flatout.remedies import propose
from flatout.results import Cause
from tests.diagnose.ledger_runs import check_sums
from tests.diagnose.views import COMPUTE, healthy, make_view, starved
from tests.record.synthetic import RunBuilder

CHOOSING_S = 0.3


def recorded(folder: Path, workers: int, passes: int = 2) -> MeasuredRun:
    """Passes of 4 batches whose indices take 0.3 s each; with workers two are chosen ahead."""
    run = RunBuilder(folder)
    main = run.process()
    loader = main.loader(num_workers=workers, prefetch_factor=2 if workers else None, persistent_workers=True)
    worker = run.worker(main, 0) if workers else main
    number = 0

    def choose() -> None:
        nonlocal number
        main.sample(main.now_s + 0.1, "best = min(rows, key=self.distance)", line=31)
        main.spend(kinds.SAMPLING, CHOOSING_S, a=number)
        number += 1

    for _ in range(passes):
        number = 0
        with main.inside(kinds.ITER_START, loader):
            for _ in range(2 * workers):
                choose()
        main._delivered[loader] = 0
        for batch in range(4):
            begin = main.now_s
            if workers:
                worker.at(max(worker.now_s, begin))
                worker.fetch(batch, cpu_s=0.05, put_s=0.0)
                main.at(worker.now_s)
                if number < 4:
                    choose()
            else:
                choose()
                main.fetch(batch, cpu_s=0.05)
            spent, main.now_s = main.now_s - begin, begin
            main.step(loader, wait_s=spent, forward_s=0.1, backward_s=0.1, worker=0 if workers else -1)
    view = build_view(load_run(run.write()))
    assert view is not None
    check_sums(view.ledger)
    return view


@pytest.mark.parametrize(("workers", "waited", "ahead"), [(0, 6, 0), (1, 3, 1)])
def test_the_sampler_is_a_part_of_the_wait_or_of_the_start_of_a_pass(
    tmp_path: Path, workers: int, waited: int, ahead: int
) -> None:
    """The window begins after the first step; the first indices of a pass belong to its start."""
    view = recorded(tmp_path, workers)
    assert view.loading is not None
    delivery = view.loading.delivery
    assert delivery.indices_s == pytest.approx(waited * CHOOSING_S)
    assert delivery.indices_ahead_s == pytest.approx(ahead * CHOOSING_S)
    inside = view.ledger.account("batch_wait.sampling")
    assert inside is not None
    # Without workers the first indices of the second pass are chosen in a wait too.
    assert inside.seconds == pytest.approx((waited + (workers == 0)) * CHOOSING_S)
    assert [line.line for line in inside.lines] == [31]
    assert view.seconds("batch_wait.ipc") == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_time_of_each_batch_and_of_the_start_are_claimed_once(tmp_path: Path, workers: int) -> None:
    context = Context.of(recorded(tmp_path, workers))
    each, start = sampler(context), epoch_start(context)
    assert isinstance(each, Cause) and isinstance(start, Cause)
    window_s = context.run.ledger.window_s
    assert start.share * window_s == pytest.approx(CHOOSING_S, rel=0.01)
    assert each.share + start.share <= context.run.ledger.share("batch_wait") + context.run.ledger.share(
        "epoch_boundary"
    )
    assert "train.py:31" in each.evidence[1].text


CHOOSING: dict[str, Any] = {"wait": 0.010, "busy": COMPUTE, "cpu": 0.010, "num_workers": 2}


def test_the_verdict_says_what_the_sampler_takes_and_where() -> None:
    view = make_view(**CHOOSING, indices_s=200 * 0.0095)
    found, _ = judge(Context.of(view))
    assert found[0].id == "sampler" and found[0].share == pytest.approx(0.475, abs=0.01)
    assert verdict(Context.of(view), found).startswith("Choosing the indices of each batch takes 48% of the time")
    assert "indices_at_once" in {remedy.id for remedy in propose(Context.of(view), found)[0]}
    assert "too_few_workers" not in {cause.id for cause in found}


def test_a_sampler_that_takes_little_is_no_cause() -> None:
    assert sampler(Context.of(make_view(**CHOOSING, indices_s=200 * 0.0002))) is None
    assert sampler(Context.of(healthy())) is None


def test_a_sampler_that_runs_while_the_workers_are_slower_still_is_no_cause() -> None:
    """Workers fetch at 20 batches/s: a training that needs 15 instead of 10 ms beside its wait is as fast."""
    assert sampler(Context.of(starved(indices_s=200 * 0.005))) is None
