"""Causes between workers and training, in reading, in ranks and in the machine, on hand-made views."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flatout.diagnose.causes.host import epoch_start, main_process_work
from flatout.diagnose.causes.machine import cpu_training, h2d, throttled
from flatout.diagnose.causes.queue import large_batches, lock_contention, sample_skew, shallow_prefetch, slow_collate
from flatout.diagnose.causes.ranks import rank_straggler
from flatout.diagnose.causes.reading import cold_cache, read_amplification, small_files, storage_bandwidth
from flatout.diagnose.ranking import judge
from flatout.measure.build import build_view
from flatout.measure.loader import _batch_order
from flatout.measure.loader_stats import FirstFetch
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.queue_state import head_of_line_s
from flatout.measure.ranks import Ranks, build_ranks
from flatout.measure.slow_samples import slow_samples
from flatout.measure.worker_records import Fetches
from flatout.predict.context import Context
from flatout.probe import events as kinds
from flatout.record import EVENT_DTYPE, load_run
from flatout.remedies.queue import shorter_samples
from flatout.results import Account, Cause, Epoch, Line
from tests.diagnose.views import (
    BATCHES,
    COMPUTE,
    SAMPLES,
    healthy,
    locked,
    make_view,
    remote,
    saturated,
    starved,
    with_loader,
)
from tests.record.synthetic import RunBuilder


def with_child(view: MeasuredRun, id: str, share: float) -> MeasuredRun:
    """The view with a part of its wait for batches."""
    window = view.ledger.window_s
    accounts = tuple(
        replace(account, children=(Account(id, id, share * window, share),)) if account.id == "batch_wait" else account
        for account in view.ledger.accounts
    )
    return replace(view, ledger=replace(view.ledger, accounts=accounts))


def found(answer: object) -> Cause:
    assert isinstance(answer, Cause), answer
    assert 0 < answer.share <= 1 and 0 < answer.confidence <= 1
    return answer


def test_a_lock_is_named_by_the_time_at_it_and_hides_the_number_of_workers() -> None:
    cause = found(lock_contention(Context.of(locked())))
    assert cause.share == pytest.approx(0.8 * 0.97, rel=0.05)
    assert lock_contention(Context.of(locked(num_workers=1))) is None
    assert lock_contention(Context.of(remote())) is None


def test_slow_batches_before_ready_ones_are_skew_and_slow_batches_alone_are_not() -> None:
    slow = np.full(BATCHES, 0.01)
    slow[::20] = 0.3
    view = with_loader(starved(num_workers=2), fetch_s=slow, head_of_line_s=1.0)
    cause = found(sample_skew(Context.of(view)))
    assert cause.share == pytest.approx(1.0 / view.ledger.window_s)
    assert "30.0 times" in cause.evidence[1].text
    assert sample_skew(Context.of(with_loader(view, head_of_line_s=0.0))) is None
    assert sample_skew(Context.of(with_loader(view, in_order=False))) is None


def test_a_few_costly_samples_are_skew_where_the_workers_compute() -> None:
    seconds, index = np.full(400, 0.001), np.arange(400) % 200
    seconds[index % 20 == 3] = 0.05
    seconds[7] = 0.2  # once: its worker had lost the core
    slow = slow_samples(seconds, index, 0.5)
    assert slow is not None
    assert slow.samples == pytest.approx(0.05)
    assert slow.excess == pytest.approx(10 * 0.049 / (10 * 0.05 + 190 * 0.001))
    assert set(slow.indices) == set(range(3, 200, 20))
    view = starved(num_workers=2)
    assert view.loading is not None
    costly = replace(view, loading=replace(view.loading, fetch=replace(view.loading.fetch, slow=slow)))
    cause = found(sample_skew(Context.of(costly)))
    assert "5.0% of the samples take 50 ms each" in cause.evidence[0].text
    assert "indices" in cause.evidence[1].text
    proposal = shorter_samples.propose(Context.of(costly), cause)
    assert proposal is not None
    assert proposal.change.fetch_cpu_factor == pytest.approx(1.0 - slow.excess, abs=0.02)
    assert sample_skew(Context.of(view)) is None
    # Timed once each, their time may be that of waiting for a core.
    assert slow_samples(seconds[:200], np.full(200, -1), 0.9) is None
    assert slow_samples(np.linspace(0.001, 0.009, 200), index[:200]) is None
    # Three tensors of a number each took 4 ms where another thread had the core meanwhile.
    interrupted = np.where(np.arange(400) % 100 == 0, 0.004, 0.000005)
    assert slow_samples(interrupted, np.arange(400), 0.3) is None
    assert slow_samples(interrupted, np.arange(400), 0.0) is not None


def events(*rows: tuple[int, float, float, int]) -> Any:
    """(kind, start, end, a) in seconds."""
    table = np.zeros(len(rows), EVENT_DTYPE)
    for row, (kind, start, end, a) in zip(table, rows, strict=True):
        row["kind"], row["start"], row["duration"], row["a"] = kind, start * 1e9, (end - start) * 1e9, a
    return table


def fetched(*rows: tuple[float, float, int]) -> Fetches:
    nothing = np.full(len(rows), np.nan)
    start, end, batch = (np.array([row[n] for row in rows]) for n in range(3))
    begin_ns, end_ns, samples = (start * 1e9).astype(np.int64), (end * 1e9).astype(np.int64), np.zeros(len(rows), int)
    return Fetches(begin_ns, end_ns, batch.astype(np.int64), samples, *[nothing] * 6)


def test_head_of_line_time_is_that_in_which_a_later_batch_was_made_already() -> None:
    waits = events((kinds.BATCH_WAIT, 0.0, 1.0, 0), (kinds.BATCH_WAIT, 1.0, 6.0, 1), (kinds.BATCH_WAIT, 6.0, 6.1, 2))
    # Batch 1 takes 5 s in one worker, batch 2 is made at 2 s in the other.
    workers = (fetched((0.0, 1.0, 0), (1.0, 2.0, 2), (2.0, 3.0, 3)), fetched((0.5, 6.0, 1)))
    assert head_of_line_s(waits, workers, np.array([0])) == pytest.approx(4.0)
    assert head_of_line_s(waits, workers[:1], np.array([0])) == 0.0
    # A later pass has the same batch numbers.
    assert head_of_line_s(waits, workers, np.array([0, int(5e9)])) == pytest.approx(4.0)


def test_large_batches_are_fat_by_the_copying_of_their_bytes() -> None:
    view = saturated(wait=0.020, cpu=0.050, collate_s=np.full(BATCHES, 0.045), batch_bytes=50_000_000)
    assert found(large_batches(Context.of(view))).share > 0.5
    assert large_batches(Context.of(with_loader(view, batch_bytes=50_000))) is None
    # Waiting until a busy worker hands a small batch out is no matter of bytes.
    late = with_loader(view, batch_bytes=2_000_000, collate_s=np.full(BATCHES, 0.001))
    assert large_batches(Context.of(with_child(late, "batch_wait.ipc", 0.3))) is None


def test_what_goes_through_the_pipe_is_bytes_too() -> None:
    view = healthy(wait=0.0105, cpu=0.001, batch_bytes=5_000_000, deserialize_s=np.full(BATCHES, 0.0103))
    assert large_batches(Context.of(view)) is None
    assert found(large_batches(Context.of(with_loader(view, pickled_bytes=5e6)))).share > 0.2


def test_freeing_large_batches_is_no_work_of_the_loop() -> None:
    line = Line("train.py", 30, "main", "for batch in loader:", 1.0)
    view = healthy(busy=COMPUTE | {"host_other": 0.005}, lines={"host_other": line}, batch_bytes=50_000_000)
    assert found(large_batches(Context.of(view))).share == pytest.approx(1.0 / view.ledger.window_s, rel=0.05)
    assert main_process_work(Context.of(view)) is None
    assert found(main_process_work(Context.of(with_loader(view, batch_bytes=1000))))


def test_collating_counts_beyond_what_copying_takes() -> None:
    slow = with_loader(starved(), collate_s=np.full(BATCHES, 0.04), batch_bytes=100_000)
    assert found(slow_collate(Context.of(slow))).share > 0.5
    assert slow_collate(Context.of(with_loader(slow, batch_bytes=100_000_000))) is None
    # Its part of the fetch is taken from the transforms.
    first = next(cause for cause in judge(Context.of(slow))[0] if cause.id != "too_few_workers")
    assert first.id == "slow_collate"
    # Text that is cut into tokens there is named as such.
    tokens = with_loader(slow, collate_groups={"tokenise": 0.9, "other": 0.1})
    shares = {cause.id: cause.share for cause in judge(Context.of(tokens))[0]}
    assert shares["cpu_tokenise"] > 0.7 and shares["slow_collate"] < 0.1


def test_a_short_queue_is_named_where_the_mean_supply_is_ample() -> None:
    slow = np.full(BATCHES, 0.001)
    slow[::50] = 0.2
    view = with_loader(
        make_view(wait=0.003, busy=COMPUTE, cpu=0.001, blocked=0.004, num_workers=1, prefetch_factor=2), fetch_s=slow
    )
    cause = found(shallow_prefetch(Context.of(view)))
    assert cause.share == pytest.approx(view.ledger.share("batch_wait"))
    assert shallow_prefetch(Context.of(with_loader(view, prefetch_factor=64))) is None
    assert shallow_prefetch(Context.of(starved())) is None  # the supply itself is too small


def test_bytes_far_beyond_the_sample_are_amplification_and_hide_the_storage() -> None:
    view = with_loader(remote(), batch_bytes=SAMPLES * 100_000, bytes_read_per_sample=20e6)
    cause = found(read_amplification(Context.of(view)))
    assert cause.evidence[0].values["ratio"] == pytest.approx(200)
    assert judge(Context.of(view))[0][0].id == "read_amplification"
    assert read_amplification(Context.of(with_loader(view, bytes_read_per_sample=3e5))) is None


def test_large_samples_wait_for_bytes_and_several_files_for_each_of_them() -> None:
    large = with_loader(remote(), batch_bytes=SAMPLES * 4_000_000, bytes_read_per_sample=5e6)
    assert judge(Context.of(large))[0][0].id == "storage_bandwidth"
    many = with_loader(remote(), files_per_sample=8.0, bytes_read_per_sample=1e5)
    assert judge(Context.of(many))[0][0].id == "small_files"
    assert small_files(Context.of(remote())) is None and storage_bandwidth(Context.of(remote())) is None


def test_a_cold_first_epoch_is_told_from_warm_ones() -> None:
    def epochs(first_s: float, waits_s: float = 0.6) -> tuple[Epoch, ...]:
        return (
            Epoch(0, first_s, 100, 3200, True, True, {"batch_wait": waits_s / first_s}),
            Epoch(1, 1.0, 100, 3200, False, True, {"batch_wait": 0.1}),
        )

    view = healthy()
    slow = replace(view, ledger=replace(view.ledger, epochs=epochs(1.5)))
    assert found(cold_cache(Context.of(slow))).share == pytest.approx(0.5 / view.ledger.window_s)
    assert cold_cache(Context.of(replace(view, ledger=replace(view.ledger, epochs=epochs(1.0))))) is None
    assert cold_cache(Context.of(view)) is None
    # Slower steps without a longer wait for batches are not lost to reading.
    slow_steps = replace(view, ledger=replace(view.ledger, epochs=epochs(1.5, waits_s=0.1)))
    assert cold_cache(Context.of(slow_steps)) is None


def test_the_beginning_of_epochs_is_told_from_the_start_of_workers() -> None:
    view = healthy(gaps={"epoch_boundary.start": 1.0})
    assert found(epoch_start(Context.of(view))).share == pytest.approx(1.0 / view.ledger.window_s)
    for part in ("launch", "worker_startup", "end"):
        assert epoch_start(Context.of(healthy(gaps={f"epoch_boundary.{part}": 1.0}))) is None
    sampling = with_loader(healthy(), sampling_s=0.5)
    assert found(epoch_start(Context.of(sampling))).share == pytest.approx(0.5 / sampling.ledger.window_s)


def test_what_a_data_set_reads_at_each_pass_is_its_beginning_and_no_slow_sample() -> None:
    first = FirstFetch(usual_s=0.05, mean_s=2.0, waited_s=5.0, part=0.3)
    waiting = {"num_workers": 2, "head_of_line_s": 3.0}
    view = starved(**waiting, pass_first_fetch=first)
    cause = found(epoch_start(Context.of(view)))
    assert cause.share == pytest.approx(5.0 / view.ledger.window_s)
    assert "the first fetch of a pass takes 2.0 s in a worker, a usual one 50 ms" in cause.evidence[1].text
    assert sample_skew(Context.of(view)) is None and isinstance(sample_skew(Context.of(starved(**waiting))), Cause)
    even = starved(**waiting, pass_first_fetch=replace(first, mean_s=0.1))
    assert epoch_start(Context.of(even)) is None and isinstance(sample_skew(Context.of(even)), Cause)


def test_what_a_data_set_makes_at_each_pass_without_workers_is_its_beginning_too() -> None:
    first = FirstFetch(usual_s=0.002, mean_s=0.8, waited_s=5.0, part=0.9)
    cause = found(epoch_start(Context.of(starved(num_workers=0, pass_first_fetch=first))))
    assert "the first fetch of a pass takes 800 ms, a usual one 2.0 ms" in cause.evidence[1].text


def test_a_quota_and_a_hot_gpu_are_named_and_the_power_cap_is_not() -> None:
    assert "CPU quota" in found(throttled(Context.of(healthy(usage={"throttled_share": 0.2})))).title
    hot = healthy(usage={"gpu_throttled_share": 0.5, "gpu_throttle_reasons": ("hardware thermal slowdown",)})
    assert "thermal" in found(throttled(Context.of(hot))).evidence[0].text
    assert throttled(Context.of(healthy(usage={"throttled_share": 0.01}))) is None


def test_an_idle_gpu_beside_a_training_on_the_cpu_is_named_with_the_reason() -> None:
    gpu = {"gpus": [{"name": "A100"}]}
    cause = found(cpu_training(Context.of(replace(healthy(process={"torch": "2.15.0"}), machine=gpu))))
    assert "built without CUDA" in cause.evidence[0].text
    assert cpu_training(Context.of(healthy())) is None
    assert cpu_training(Context.of(replace(healthy(uses_gpu=True), machine=gpu))) is None


def test_copies_to_the_gpu_are_named_with_how_the_memory_lies() -> None:
    view = healthy(uses_gpu=True, busy=COMPUTE | {"h2d": 0.004})
    assert "does not pin" in found(h2d(Context.of(view))).evidence[0].text
    assert h2d(Context.of(healthy(busy=COMPUTE | {"h2d": 0.004}))) is None


def test_a_rank_that_is_last_in_most_steps_is_named_and_chance_is_not() -> None:
    ranks = Ranks(4, 100, 2, 0, 0.9, 0.3, "waits for batches", 0.05, 0.001)
    cause = found(rank_straggler(Context.of(replace(healthy(), ranks=ranks))))
    assert cause.share == 0.3 and "rank 2" in cause.title
    assert judge(Context.of(replace(healthy(), ranks=ranks)))[0][0].id == "rank_straggler"
    waiting = judge(Context.of(replace(healthy(), ranks=replace(ranks, waited_share=0.6))))[0]
    assert "compute_bound" not in [cause.id for cause in waiting]  # what looks like computing is waiting
    assert rank_straggler(Context.of(replace(healthy(), ranks=replace(ranks, late_share=0.3)))) is None


def two_ranks(folder: Path, late_s: float) -> MeasuredRun:
    """The second rank waits for its data; the first one waits for it in the exchange of gradients."""
    run = RunBuilder(folder)
    for rank, (wait, backward) in enumerate(((0.001, 0.02 + late_s), (0.001 + late_s, 0.02))):
        process = run.process(start_s=100.0 * rank, rank=rank, local_rank=rank, world_size=2)
        loader = process.loader(num_workers=0, batch_size=4)
        process.iterate(loader)
        for _ in range(30):
            process.step(loader, wait_s=wait, forward_s=0.01, backward_s=backward, optimizer_s=0.001)
    view = build_view(load_run(run.write()))
    assert view is not None
    return view


def test_ranks_are_compared_without_a_common_clock(tmp_path: Path) -> None:
    view = two_ranks(tmp_path / "late", 0.05)
    assert view.ranks is not None
    assert (view.ranks.straggler, view.ranks.late_share, view.ranks.part) == (1, 1.0, "waits for batches")
    assert view.ranks.waited_share == pytest.approx(0.05 / 0.082, rel=0.02)
    even = two_ranks(tmp_path / "even", 0.0)
    assert even.ranks is not None and even.ranks.waited_share == pytest.approx(0, abs=1e-6)
    assert rank_straggler(Context.of(even)) is None


def test_one_rank_has_nobody_to_wait_for(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    process = run.process(rank=0)
    loader = process.loader(num_workers=0, batch_size=4)
    process.iterate(loader)
    for _ in range(20):
        process.step(loader, wait_s=0.01, backward_s=0.01)
    assert build_ranks(load_run(run.write())) is None


def test_fetches_are_put_in_the_order_of_their_batches_pass_by_pass() -> None:
    workers = (fetched((0.0, 1.0, 0), (1.0, 2.0, 2), (10.0, 11.0, 0)), fetched((0.0, 5.0, 1), (10.0, 12.0, 1)))
    order = _batch_order(workers, np.array([0, int(9e9)]))
    assert order.tolist() == [0, 3, 1, 2, 4]
    assert _batch_order((), np.array([0])).tolist() == []
