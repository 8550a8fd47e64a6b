"""Operators that a CPU computes one element after the other, on runs whose traces showed them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flatout.diagnose.cause import CauseSpec
from flatout.diagnose.causes.slow_kernels import bce_of_probabilities, dropout_masks
from flatout.measure.slow_kernels import SlowKernel, SlowKernels
from flatout.remedies.proposal import DATA, NUMERICS
from flatout.results import NotMeasured
from tests.diagnose.test_causes_unneeded_work import found, remedies, run
from tests.diagnose.views import small_operators


@pytest.mark.parametrize(
    ("cause", "with_", "title", "evidence", "remedy", "semantic_class"),
    [
        (
            dropout_masks,
            lambda kernel: SlowKernels(masks=kernel),
            "random masks of 5,120,000 elements are drawn in each step, as dropout does",
            "masks from fewer random bits take 25% of its time here",
            "quick_dropout",
            DATA,
        ),
        (
            bce_of_probabilities,
            lambda kernel: SlowKernels(bce=kernel),
            "binary cross-entropy of 5,120,000 probabilities a step is computed one value at a time",
            "the same formula with logarithms of whole vectors takes 25% of its time here",
            "quick_bce",
            NUMERICS,
        ),
    ],
)
def test_what_takes_long_is_named_with_what_the_quicker_way_saves(
    cause: CauseSpec,
    with_: Callable[[SlowKernel], SlowKernels],
    title: str,
    evidence: str,
    remedy: str,
    semantic_class: str,
) -> None:
    context = run(operators=small_operators(0.001, slow=with_(SlowKernel(5_120_000, 0.004, 1.0, 0.25))))
    named = found(cause(context))
    assert named.title == title and evidence in named.evidence[0].text
    assert named.share == pytest.approx(0.3, abs=0.05)
    offered = remedies(context)[remedy]
    assert offered.semantic_class == semantic_class and offered.settings == {remedy: True}
    assert offered.gain.predicted > 1.3
    inside = run(operators=small_operators(0.001, slow=with_(SlowKernel(5_120_000, 0.004, 0.1, 0.25))))
    assert remedies(inside)[remedy].settings == {}  # by calls that no setting reaches
    as_quick = run(operators=small_operators(0.001, slow=with_(SlowKernel(5_120_000, 0.004, 1.0, 1.0))))
    assert cause(as_quick) is None and cause(run(operators=small_operators(0.001))) is None
    assert isinstance(cause(run(operators="no kernel trace was taken")), NotMeasured)
