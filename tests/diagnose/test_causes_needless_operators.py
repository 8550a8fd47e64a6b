"""Operators that work on far more than is used, on runs whose traces showed them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flatout.diagnose.causes.needless_operators import (
    dense_gradients,
    full_sort,
    needless_logits,
    sparse_as_dense,
)
from flatout.measure.dense_gradients import DenseGradients
from flatout.measure.full_sorts import FullSorts
from flatout.measure.needless_logits import NeedlessLogits
from flatout.measure.zero_operands import ZeroOperands
from flatout.remedies.proposal import NUMERICS, OPTIMISATION
from flatout.results import NotMeasured
from tests.diagnose.test_causes_unneeded_work import found, remedies, run
from tests.diagnose.views import small_operators


def test_sorts_of_which_few_places_are_used_are_named() -> None:
    context = run(operators=small_operators(0.001, sorts=FullSorts((16, 512, 2048), 2, 16, 0.004)))
    cause = found(full_sort(context))
    assert cause.title == "all of 2,048 values are sorted to use 16 of them"
    assert cause.share == pytest.approx(0.32, abs=0.05)
    assert "a tensor of 16x512x2048 is sorted along dimension 2, and cut to 16 places" in cause.evidence[0].text
    offered = remedies(context)["first_places"]
    assert "topk(16, dim=2" in offered.how and offered.gain.predicted > 1.3 and offered.semantic_class == NUMERICS
    assert full_sort(run(operators=small_operators(0.001))) is None
    assert isinstance(full_sort(run(operators="no kernel trace was taken")), NotMeasured)


def test_gradients_of_whole_tables_are_named() -> None:
    dense = DenseGradients(((250_000, 64), (60_000, 64)), 2_048, 0.004)
    context = run(operators=small_operators(0.001, dense=dense))
    cause = found(dense_gradients(context))
    assert cause.share == pytest.approx(0.44, abs=0.03)  # with its part of the overhead
    assert "250,000 x 64 and 60,000 x 64 values, of which a step takes 2,048 rows" in cause.evidence[0].text
    assert dense_gradients(run(operators=small_operators(0.001))) is None
    assert isinstance(dense_gradients(run(operators="no kernel trace was taken")), NotMeasured)
    # Other optimizers than SGD move rows that no batch takes.
    of = {name: replace(context.run.process, optimizer=name) for name in ("SGD", "Adam")}
    offered = {name: remedies(run(context.run, process=process)) for name, process in of.items()}
    assert offered["SGD"]["sparse_embeddings"].settings == {"sparse_embeddings": True}
    assert offered["Adam"]["sparse_optimizer"].settings == {"sparse_adam": True}
    assert "sparse_embeddings" not in offered["Adam"] and "sparse_optimizer" not in offered["SGD"]


def test_values_of_classes_that_nothing_needs_are_named() -> None:
    logits = NeedlessLogits(50_265, 1_024, 0.85, 50_265, 0.005, 0.006)
    context = run(operators=small_operators(0.001, logits=logits))
    cause = found(needless_logits(context))
    assert cause.title == "the output layer computes 50,265 values at positions that the loss ignores"
    assert cause.share == pytest.approx(0.85 * 0.5, abs=0.03)
    assert "ignores 85% of 1,024 positions" in cause.evidence[0].text and "56% of the time" in cause.evidence[0].text
    offered = remedies(context)
    assert offered["logits_where_needed"].semantic_class == NUMERICS and "classes_that_occur" not in offered
    assert 1.3 < offered["logits_where_needed"].gain.predicted < 1 / (1 - cause.share)
    too_many = run(operators=small_operators(0.001, logits=replace(logits, ignored=0.0, used=4_000)))
    cause = found(needless_logits(too_many))
    assert cause.title == "the output layer has 50,265 classes, of which 4,000 occur"
    offered = remedies(too_many)
    assert offered["classes_that_occur"].semantic_class == OPTIMISATION and "logits_where_needed" not in offered
    for nothing in (None, replace(logits, ignored=0.0)):
        assert needless_logits(run(operators=small_operators(0.001, logits=nothing))) is None
    assert isinstance(needless_logits(run(operators="no kernel trace was taken")), NotMeasured)


def test_products_with_zeros_are_named() -> None:
    zeros = ZeroOperands((4_096, 4_096), 0.002, 0.004, 0.0)
    context = run(operators=small_operators(0.001, zeros=zeros))
    cause = found(sparse_as_dense(context))
    assert cause.title == "matrices of 4,096x4,096 values, of which 0.2% are not zero, are multiplied as a whole"
    assert cause.share == pytest.approx(0.4, abs=0.05)
    assert "44% of the time in kernels" in cause.evidence[0].text and "making" not in cause.evidence[0].text
    offered = remedies(context)["sparse_products"]
    assert offered.semantic_class == NUMERICS and 1.3 < offered.gain.predicted <= 1 / (1 - cause.share)
    on_gpu = found(sparse_as_dense(run(operators=small_operators(0.001, zeros=zeros, on_device=True))))
    assert (cause.confidence, on_gpu.confidence) == (0.8, 0.5)
    made = replace(zeros, product_s=0.001, making_s=0.003)
    cause = found(sparse_as_dense(run(operators=small_operators(0.001, zeros=made))))
    assert "11% of the time in kernels, making them 33%" in cause.evidence[0].text
    for nothing in (None, replace(zeros, nonzero=0.2)):
        assert sparse_as_dense(run(operators=small_operators(0.001, zeros=nothing))) is None
    assert isinstance(sparse_as_dense(run(operators="no kernel trace was taken")), NotMeasured)
