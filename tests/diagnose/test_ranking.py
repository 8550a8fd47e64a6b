"""Which cause leads."""

from __future__ import annotations

import pytest

from flatout.diagnose import ranking
from flatout.diagnose.causes import BY_ID, CAUSES
from flatout.diagnose.ranking import judge, rank
from flatout.diagnose.reliability import BROAD, most_confidence
from flatout.measure.measured_run import MeasuredRun
from flatout.predict.context import Context
from flatout.report.outline import confidence_in_words
from flatout.results import Cause, Evidence
from tests.diagnose.views import COMPUTE, crowded, healthy, locked, remote, saturated, starved, without_workers


def cause(id: str, share: float) -> Cause:
    return Cause(id, id, share, 0.9, ())


@pytest.mark.parametrize(
    ("view", "leads"),
    [
        (starved(), "too_few_workers"),
        (saturated(), "cpu_decode"),
        (saturated(cpu_groups={"transform": 0.8, "decode": 0.1, "other": 0.1}), "cpu_transform"),
        (remote(), "storage_latency"),
        (crowded(), "too_many_workers"),
        (without_workers(), "no_workers"),
        (healthy(), "compute_bound"),
        (healthy(busy=COMPUTE | {"host_other": 0.010}), "main_process_work"),
        (healthy(busy=COMPUTE | {"logging": 0.010}), "logging"),
        (healthy(gaps={"checkpoint": 1.0}), "checkpoint"),
        (healthy(gaps={"validation": 1.0}), "validation"),
        (without_workers(cores=1), "cpu_decode"),
        (starved(cpu=0.001, blocked=0.049), "too_few_workers"),
        (saturated(cpu_groups={"lookup": 0.8, "transform": 0.2}), "row_lookup"),
        (saturated(cpu_groups={"tokenise": 0.8, "other": 0.2}), "cpu_tokenise"),
        (saturated(cpu_groups={"read": 0.8, "other": 0.2}), "cpu_read"),
        # A table is the waste, whoever looks the rows up; a little of it is not.
        (starved(cpu_groups={"lookup": 0.8, "transform": 0.2}), "row_lookup"),
        (without_workers(cpu_groups={"lookup": 0.8, "transform": 0.2}), "row_lookup"),
        (starved(cpu_groups={"lookup": 0.3, "transform": 0.7}), "too_few_workers"),
        (without_workers(cpu_groups={"tokenise": 0.8, "other": 0.2}), "no_workers"),
        (healthy(cpu_groups={"lookup": 1.0}), "compute_bound"),
    ],
)
def test_the_planted_fault_leads(view: MeasuredRun, leads: str) -> None:
    causes, _ = judge(Context.of(view))
    assert causes[0].id == leads


@pytest.mark.parametrize(("share", "first"), [(0.95, "rank_straggler"), (0.7, "main_process_work")])
def test_of_nearly_equal_causes_the_mechanism_comes_first(share: float, first: str) -> None:
    ranked = rank([cause("main_process_work", 0.6), cause("rank_straggler", 0.6 * share)])
    assert ranked[0].id == first


@pytest.mark.parametrize(("samples", "first"), [(1.0, "small_batch"), (64.0, "overhead_bound")])
def test_a_batch_of_few_samples_is_the_mechanism_of_many_small_operators(samples: float, first: str) -> None:
    batch = Cause("small_batch", "", 0.6, 0.9, (Evidence("", {"samples": samples}),))
    assert rank([cause("overhead_bound", 0.57), batch])[0].id == first


@pytest.mark.parametrize(("share", "first"), [(0.13, "logging"), (0.11, "overhead_bound")])
def test_overhead_counts_for_what_can_be_taken_away_of_it(share: float, first: str) -> None:
    assert rank([cause("overhead_bound", 0.25), cause("logging", share)])[0].id == first


@pytest.mark.parametrize(("times", "first"), [(1, "logging"), (2, "validation")])
def test_what_happened_once_may_be_rarer_than_it_looks(times: int, first: str) -> None:
    validation = Cause("validation", "", 0.3, 0.9, (Evidence("", {"count": times}),))
    assert rank([cause("logging", 0.2), validation])[0].id == first


@pytest.mark.parametrize("id", sorted(BROAD))
def test_what_another_fault_often_brings_about_is_stated_with_low_confidence(id: str) -> None:
    assert id in BY_ID
    assert most_confidence(id) < 0.5 < most_confidence("compute_bound") < most_confidence("validation")
    assert confidence_in_words(Cause(id, id, 0.5, most_confidence(id), ())).startswith("low confidence, often a sign")


def test_in_a_healthy_run_nothing_is_called_a_fault() -> None:
    causes, _ = judge(Context.of(healthy()))
    assert [cause.id for cause in causes] == ["compute_bound"]


def test_a_lock_is_named_and_not_called_something_else() -> None:
    assert [cause.id for cause in judge(Context.of(locked()))[0]] == ["lock_contention"]


def test_decoding_comes_after_missing_workers_although_removing_it_would_give_much() -> None:
    causes, _ = judge(Context.of(starved()))
    decode = next(cause for cause in causes if cause.id == "cpu_decode")
    assert decode.hidden_by == "too_few_workers"
    assert causes.index(decode) > 0


def test_causes_are_ordered_by_share() -> None:
    order = rank([cause("logging", 0.1), cause("checkpoint", 0.3), cause("validation", 0.2)])
    assert [cause.id for cause in order] == ["checkpoint", "validation", "logging"]


def test_storage_goes_before_decoding_even_when_its_share_is_smaller() -> None:
    order = rank([cause("cpu_decode", 0.5), cause("storage_latency", 0.3)])
    assert [cause.id for cause in order] == ["storage_latency", "cpu_decode"]
    assert order[1].hidden_by == "storage_latency"


@pytest.mark.parametrize("own", ["main_process_work", "own_input"])
@pytest.mark.parametrize(("line", "share", "hidden"), [(166, 0.35, True), (167, 0.35, False), (166, 0.1, False)])
def test_what_is_wrong_in_a_line_comes_before_the_time_it_takes(
    own: str, line: int, share: float, hidden: bool
) -> None:
    lines = [Evidence("in model.py", {"file": "model.py", "line": at}) for at in (166, 168)]
    named = Cause("coo_products", "coo_products", share, 0.9, (Evidence("", {"file": "model.py", "line": line}),))
    order = rank([Cause(own, own, 0.48, 0.9, (Evidence("593 ms a step", {}), *lines)), named])
    assert order[0].id == ("coo_products" if hidden else own)
    assert (order[1].hidden_by == "coo_products") is hidden


@pytest.mark.parametrize("slowed", ["recompilation", "graph_breaks"])
def test_a_setting_for_debugging_slows_the_compiler_and_the_python_between_graphs(slowed: str) -> None:
    order = rank([cause(slowed, 0.4), cause("debug_mode", 0.3)])
    assert [(cause.id, cause.hidden_by) for cause in order] == [("debug_mode", None), (slowed, "debug_mode")]


@pytest.mark.parametrize("wasted", ["padding_waste", "unused_gradients", "layout_conversions"])
def test_work_in_vain_is_no_effect_of_other_causes_in_the_step(wasted: str) -> None:
    others = ("debug_mode", "graph_breaks", "recompilation", "overhead_bound", "small_batch")
    order = rank([cause(wasted, 0.2), *(cause(id, 0.3) for id in others)])
    assert next(cause for cause in order if cause.id == wasted).hidden_by is None


@pytest.mark.parametrize("id", ["checkpoint", "logging", "validation", "main_process_work"])
@pytest.mark.parametrize(("share", "first"), [(0.24, True), (0.1, False)])
def test_a_larger_batch_changes_what_is_learned_and_goes_behind_what_costs_nearly_as_much(
    id: str, share: float, first: bool
) -> None:
    assert (rank([cause("small_batch", 0.26), cause(id, share)])[0].id == id) == first


def test_a_cause_that_gives_little_hides_nothing() -> None:
    order = rank([cause("cpu_decode", 0.5), cause("too_few_workers", 0.04)])
    assert [(cause.id, cause.hidden_by) for cause in order] == [("cpu_decode", None), ("too_few_workers", None)]


@pytest.mark.parametrize(("workers", "first"), [(0.29, "cpu_transform"), (0.49, "no_workers")])
def test_workers_come_first_where_they_give_half_of_what_all_fetching_takes(workers: float, first: str) -> None:
    """On two cores, of which the training uses one and more, they may not."""
    order = rank([cause("cpu_transform", 0.38), cause("cpu_decode", 0.3), cause("no_workers", workers)])
    assert order[0].id == first
    assert order[-1].hidden_by == (None if first == "cpu_transform" else "no_workers")


def test_small_faults_do_not_displace_the_healthy_answer_but_material_ones_do() -> None:
    assert rank([cause("logging", 0.04), cause("compute_bound", 0.9)])[0].id == "compute_bound"
    assert rank([cause("logging", 0.2), cause("compute_bound", 0.7)])[0].id == "logging"


def test_beside_a_material_fault_of_the_data_no_run_is_called_healthy() -> None:
    assert [cause.id for cause in rank([cause("cpu_transform", 0.23), cause("compute_bound", 0.76)])] == [
        "cpu_transform"
    ]
    small = rank([cause("cpu_transform", 0.04), cause("compute_bound", 0.9)])
    assert [cause.id for cause in small] == ["compute_bound", "cpu_transform"]


@pytest.mark.parametrize("queued", [0.0, 0.2])
def test_a_share_beyond_the_wait_for_batches_says_that_it_frees_cores(
    queued: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = saturated(wait=0.001, usage={"main_runqueue_share": queued})
    wait = view.ledger.share("batch_wait")
    monkeypatch.setattr(ranking, "CAUSES", (lambda _: cause("cpu_transform", wait + 0.15),))
    (found,), _ = judge(Context.of(view))
    if queued:
        assert found.share == pytest.approx(wait + 0.15)
        assert found.evidence[0].text.startswith("also frees the cores that the training computes on")
    else:
        assert found.share == wait and not found.evidence


def test_the_ids_of_causes_are_unique_and_fixed() -> None:
    ids = [cause.id for cause in CAUSES]
    assert len(ids) == len(set(ids))
    # A published contract: ids are added, never renamed.
    assert " ".join(sorted(ids)) == (
        "activation_checkpointing bce_of_probabilities broadcast_pairs channels_first checkpoint cold_cache "
        "compute_bound coo_products cpu_decode "
        "cpu_read cpu_tokenise cpu_training cpu_transform crowded_machine debug_mode dense_gradients device_sync "
        "discarded_gradients dropout_masks epoch_start frozen_features full_sort garbage_collection "
        "gathered_weights graph_breaks h2d hooks interpreter_lock large_batches layout_conversions lock_contention "
        "logging main_process_work needless_logits needless_workers no_workers overhead_bound own_input "
        "padding_waste page_faults rank_straggler read_amplification recompilation repeated_rows repeated_work "
        "reported_passes row_lookup sample_skew sampler shallow_prefetch slice_gradients slice_writes slow_collate "
        "small_batch small_files spanning_kernels sparse_as_dense stepwise_products stepwise_recurrence "
        "storage_bandwidth storage_latency throttled too_few_threads too_few_workers too_many_threads "
        "too_many_workers unbatched_calls unfused_attention unfused_functions unmerged_layers "
        "unused_gradients validation wide_dtype "
        "worker_restart"
    )


@pytest.mark.parametrize("view", [starved(), saturated(), remote(), healthy(), crowded(), locked(), without_workers()])
def test_shares_and_confidences_are_parts_of_one(view: MeasuredRun) -> None:
    for found in judge(Context.of(view))[0]:
        assert 0 < found.share <= 1
        assert 0 < found.confidence <= 1
