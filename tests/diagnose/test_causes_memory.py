"""Memory that is taken anew in every step, on hand-made runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flatout.diagnose.causes.memory import page_faults
from flatout.diagnose.ranking import judge
from flatout.diagnose.verdict import verdict
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.page_faults import PageFaults
from flatout.predict.context import Context
from flatout.remedies import propose
from flatout.results import Cause, NotMeasured
from tests.diagnose.views import healthy, saturated, with_loader

MANY = PageFaults(per_s=200_000, system_cores=0.5, cores=1.5)


def faulting(view: MeasuredRun, **faults: Any) -> Context:
    return Context.of(replace(view, usage=replace(view.usage, **faults)))


def test_a_training_that_takes_its_memory_anew_is_not_bound_by_computation() -> None:
    context = faulting(healthy(cpu=0.001), main_faults=MANY)
    causes, _ = judge(context)
    assert [cause.id for cause in causes[:2]] == ["page_faults", "compute_bound"]
    assert causes[0].share == pytest.approx(1.2 * 0.5 / 1.5, abs=0.05)
    assert "CPU time in the kernel" in causes[0].evidence[0].text
    assert verdict(context, causes).startswith("Memory that every step takes anew from the kernel")
    remedies, _ = propose(context, causes)
    first = remedies[0]
    assert (first.id, first.settings, first.semantic_class) == ("keep_memory", {"memory_kept": True}, "identical")
    assert first.gain.low < 1 / (1 - 0.5 / 1.5) < first.gain.high


def test_what_a_compiler_allocates_is_not_of_every_step() -> None:
    assert page_faults(faulting(healthy(cpu=0.001, busy={"compile": 0.98 * 0.010}), main_faults=MANY)) is None


def test_few_faults_are_no_cause() -> None:
    few = PageFaults(per_s=10_000, system_cores=0.02, cores=1.5)
    assert page_faults(faulting(healthy(cpu=0.001), main_faults=few)) is None


def test_faults_of_batches_from_workers_are_those_of_shared_memory() -> None:
    view = healthy(cpu=0.001)
    assert view.loading is not None
    rate = view.loading.delivery.batches / view.ledger.window_s
    handed = with_loader(view, batch_bytes=int(MANY.per_s / rate * 4096))
    assert page_faults(faulting(handed, main_faults=MANY)) is None


def test_a_gpu_computes_without_them() -> None:
    assert page_faults(faulting(healthy(uses_gpu=True), main_faults=MANY)) is None


def test_uncounted_faults_are_not_measured() -> None:
    answer = page_faults(faulting(healthy(cpu=0.001)))
    assert isinstance(answer, NotMeasured)
    assert "not counted" in answer.because


def test_workers_that_fault_fetch_faster_without() -> None:
    context = faulting(saturated(), main_faults=PageFaults(0, 0, 0.1), worker_faults=MANY)
    causes, _ = judge(context)
    assert "page_faults" not in [cause.id for cause in causes]
    remedies, _ = propose(context, causes)
    found = [one for one in remedies if one.id == "keep_memory"]
    assert found and isinstance(found[0].cause, str) and found[0].gain.predicted > 1.1


def test_a_cause_is_found_by_its_id() -> None:
    found = page_faults(faulting(healthy(cpu=0.001), main_faults=MANY))
    assert isinstance(found, Cause) and found.id == "page_faults"
