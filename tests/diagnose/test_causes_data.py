"""Causes in preparation and storage, on planted views, and what is easily taken for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flatout.diagnose.cause import CauseSpec
from flatout.diagnose.causes import BY_ID
from flatout.diagnose.causes.preparation import cpu_decode, cpu_read, cpu_tokenise, cpu_transform, row_lookup
from flatout.diagnose.causes.storage import storage_latency
from flatout.diagnose.ranking import judge
from flatout.measure.loader_stats import TransformCost
from flatout.predict.context import Context
from flatout.remedies import propose
from flatout.results import Cause, Line, NotMeasured
from tests.diagnose.views import (
    BATCHES,
    SAMPLES,
    healthy,
    locked,
    remote,
    saturated,
    spread,
    with_loader,
    without_workers,
)


def found(answer: Cause | NotMeasured | None) -> Cause:
    assert isinstance(answer, Cause), answer
    return answer


def test_decoding_on_full_cores_is_named_with_its_hottest_line() -> None:
    cause = found(cpu_decode(Context.of(saturated())))
    # Fetches of 50 ms CPU with 70% decoding on 2 workers: 26 ms a step fall to 10 ms, the training step.
    assert cause.share == pytest.approx(1 - 10 / 26, abs=0.03)
    assert any("train.py:12" in evidence.text for evidence in cause.evidence)


def test_decoding_outranks_transforms_when_it_takes_more_of_the_cpu_time() -> None:
    assert found(cpu_decode(Context.of(saturated()))).share > found(cpu_transform(Context.of(saturated()))).share


@pytest.mark.parametrize(("pixels_out", "first"), [(1e4, "cpu_decode"), (5e5, "cpu_transform")])
def test_a_resize_of_what_was_decoded_far_too_large_belongs_to_decoding(pixels_out: float, first: str) -> None:
    resize = TransformCost("Resize", 0.0005, 1e6, pixels_out)
    groups = {"transform": 0.55, "decode": 0.43}
    view = saturated(
        cpu_groups=groups, item_s=spread(0.0015), transforms=(resize, TransformCost("ToImage", 1e-5, 1, 1))
    )
    ranked, _ = judge(Context.of(view))
    assert ranked[0].id == first
    said = [evidence.text for evidence in ranked[0].evidence]
    assert any("Resize makes 10,000 pixels of 1,000,000" in text for text in said) == (first == "cpu_decode")
    smaller = {remedy.id: remedy for remedy in propose(Context.of(view), ranked)[0]}["faster_decode"]
    assert smaller.gain is not None and smaller.gain.predicted > 1.2


def test_transforms_are_named_when_they_are_most_of_the_cpu_time() -> None:
    groups = {"transform": 0.6, "convert": 0.2, "decode": 0.02, "other": 0.18}
    view = saturated(cpu_groups=groups)
    assert found(cpu_transform(Context.of(view))).share > 0.5
    assert cpu_decode(Context.of(view)) is None


def test_computing_in_the_data_sets_own_code_is_named_with_less_confidence() -> None:
    own = found(cpu_transform(Context.of(saturated(cpu_groups={"other": 1.0}))))
    known = found(cpu_transform(Context.of(saturated(cpu_groups={"transform": 1.0}))))
    assert own.share == known.share
    assert own.confidence < known.confidence


def test_decoding_that_the_training_never_waits_for_is_no_fault() -> None:
    assert cpu_decode(Context.of(healthy())) is None


def test_decoding_in_the_training_process_counts_with_what_it_takes_of_the_step() -> None:
    assert found(cpu_decode(Context.of(without_workers()))).share == pytest.approx(0.7 * 0.8, abs=0.02)


def test_starvation_by_a_sleeping_network_is_not_called_preparation() -> None:
    decode = cpu_decode(Context.of(remote()))
    assert decode is None or found(decode).share < 0.15
    assert found(storage_latency(Context.of(remote()))).share == pytest.approx(0.8, abs=0.03)


LOOKUPS: dict[str, Any] = {
    "cpu_groups": {"lookup": 0.8, "transform": 0.15, "tokenise": 0.05},
    "packages": {"lookup": "pandas"},
    "lines_of_group": {"lookup": (Line("/home/me/data.py", 31, "Visits.__getitem__", "row = rows.iloc[i]", 1.0),)},
}


def test_rows_looked_up_one_by_one_are_named_with_the_package_and_the_users_line() -> None:
    context = Context.of(saturated(**LOOKUPS))
    cause = found(row_lookup(context))
    assert cause.share == pytest.approx(1 - 10 / 26, abs=0.03)
    assert "looking rows up (pandas)" in cause.evidence[0].text
    assert cause.evidence[-1].text.startswith("/home/me/data.py:31 row = rows.iloc[i]")
    assert BY_ID["row_lookup"].sentence(context, cause) == (
        "The training waits 62% of the time for batches: each of the 2 workers spends 77% of its time "
        "looking rows up in a table with pandas (Visits.__getitem__, data.py:31)."
    )


def test_lookups_that_mostly_wait_for_a_core_say_so() -> None:
    context = Context.of(saturated(**LOOKUPS, cpu=0.010, runqueue=0.042))
    sentence = BY_ID["row_lookup"].sentence
    assert sentence is not None
    said = sentence(context, Cause("row_lookup", "", 0.3, 0.9, ()))
    assert "spends 15% of its time looking rows up in a table with pandas" in said
    assert said.endswith("(Visits.__getitem__, data.py:31), and 81% waiting for a core.")


@pytest.mark.parametrize(("cause", "group"), [(cpu_tokenise, "tokenise"), (cpu_read, "read"), (row_lookup, "lookup")])
def test_each_group_of_functions_has_a_cause_of_its_own(cause: CauseSpec, group: str) -> None:
    own = found(cause(Context.of(saturated(cpu_groups={group: 0.7, "decode": 0.3}))))
    assert own.share > found(cpu_decode(Context.of(saturated(cpu_groups={group: 0.7, "decode": 0.3})))).share
    assert cause(Context.of(saturated(cpu_groups={"decode": 1.0}))) is None
    assert cause(Context.of(healthy(cpu_groups={group: 1.0}))) is None


def test_without_stack_samples_preparation_is_not_divided() -> None:
    assert isinstance(cpu_decode(Context.of(saturated(cpu_groups={}))), NotMeasured)


def test_without_cpu_times_preparation_is_not_judged() -> None:
    view = saturated(cpu=None, runqueue=None, blocked=None, fetch=0.052)
    assert isinstance(cpu_decode(Context.of(view)), NotMeasured)
    assert isinstance(storage_latency(Context.of(view)), NotMeasured)


def test_a_remote_store_is_named_with_mount_and_peer() -> None:
    text = " ".join(evidence.text for evidence in found(storage_latency(Context.of(remote()))).evidence)
    assert "/data (nfs)" in text
    assert "10.0.0.7:443" in text


def test_a_lock_is_not_called_storage() -> None:
    assert storage_latency(Context.of(locked())) is None


def test_a_sleep_is_not_called_storage() -> None:
    assert storage_latency(Context.of(remote(blocked_groups={"other": 1.0}))) is None


def test_blocked_fetches_without_stack_samples_are_not_judged() -> None:
    answer = storage_latency(Context.of(remote(blocked_groups={})))
    assert isinstance(answer, NotMeasured)
    assert "locks" in answer.because


def test_slow_reads_that_workers_hide_are_no_fault() -> None:
    assert storage_latency(Context.of(healthy(blocked=0.010, blocked_groups={"read": 1.0}))) is None


def test_a_library_that_unpacks_in_threads_of_its_own_is_computing_and_no_storage() -> None:
    """As pyarrow does: the fetching thread stands still while others of its worker use the cores."""
    given: dict[str, Any] = {
        "cpu": 0.010,
        "blocked": 0.050,
        "num_workers": 2,
        "cores": 2,
        "cpu_groups": {"decode": 1.0},
    }
    tables = saturated(**given, blocked_groups={"decode": 1.0}, bytes_read_per_sample=8e6, batch_bytes=SAMPLES * 100)
    helping = with_loader(tables, fetch_process_cpu_s=np.full(BATCHES, 0.060))
    found = {cause.id: cause for cause in judge(Context.of(helping))[0]}
    assert next(iter(found)) == "read_amplification"
    assert found["cpu_decode"].hidden_by == "read_amplification" and found["cpu_decode"].share > 0.4
    assert "storage_latency" not in found
    waiting = {cause.id for cause in judge(Context.of(tables))[0]}
    assert "storage_latency" in waiting


def test_a_client_that_asks_a_network_computes_for_it_too() -> None:
    """What its library computes goes with the waiting, when the bytes are at hand."""
    idle = found(storage_latency(Context.of(remote(cpu=0.100, blocked=0.100, cpu_groups={"decode": 1.0}))))
    busy = found(
        storage_latency(Context.of(remote(cpu=0.100, blocked=0.100, cpu_groups={"network": 0.9, "decode": 0.1})))
    )
    assert busy.share > idle.share


def test_a_query_that_goes_through_its_whole_table_wants_an_index() -> None:
    view = saturated(
        blocked_groups={}, cpu_groups={"read": 1.0}, packages={"read": "sqlite3"}, bytes_read_per_sample=2.4e6,
        batch_bytes=SAMPLES * 100,
    )  # fmt: skip
    context = Context.of(view)
    causes = judge(context)[0]
    assert (causes[0].id, causes[0].title) == ("cpu_read", "each query goes through its table")
    remedies = [remedy for remedy in propose(context, causes)[0] if remedy.cause == causes[0].id]
    assert remedies[0].id == "cheaper_reads" and remedies[0].how.startswith("CREATE INDEX")
    assert "chunked_reading" not in {remedy.id for remedy in remedies}


@pytest.mark.parametrize(
    ("package", "first"), [("pandas", "read_amplification"), ("json", "read_amplification"), ("PIL", "cpu_decode")]
)
def test_parsing_a_table_for_one_of_its_rows_is_amplification_and_decoding_a_picture_is_not(
    package: str, first: str
) -> None:
    view = saturated(
        blocked_groups={}, cpu_groups={"decode": 1.0}, packages={"decode": package}, bytes_read_per_sample=2.4e6,
        batch_bytes=SAMPLES * 100,
    )  # fmt: skip
    found = judge(Context.of(view))[0]
    assert next(cause.id for cause in found if cause.id in ("read_amplification", "cpu_decode")) == first
