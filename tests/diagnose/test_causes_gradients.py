"""Gradients that nothing uses, on runs whose steps after the window showed them."""

from __future__ import annotations

from typing import Any

import pytest

from flatout.diagnose.causes.gradients import discarded_gradients, unused_gradients
from flatout.diagnose.ranking import judge
from flatout.diagnose.verdict import verdict
from flatout.remedies.proposal import IDENTICAL, OPTIMISATION
from flatout.results import NotMeasured
from tests.diagnose.test_causes_unneeded_work import found, remedies, run
from tests.diagnose.views import discarded, starved, tried, unused


def test_unused_gradients_are_named_with_their_module_and_their_measured_cost() -> None:
    context = run(unused_gradients=unused(0.4))
    cause = found(unused_gradients(context))
    assert cause.share == pytest.approx(0.4, abs=0.02) and cause.confidence == 0.9
    assert [one.text for one in cause.evidence] == [
        "900 of 1,000 parameters that get a gradient are in no optimizer, and keep their values",
        "7 blocks of 8 steps without these gradients took 19 ms a step, as it is 31 ms",
    ]
    assert verdict(context, judge(context)[0]) == (
        "No optimizer uses the gradients of Net.backbone: they take 40% of the time."
    )
    offered = remedies(context)
    assert offered["frozen_parameters"].semantic_class == IDENTICAL and "frozen_clipped_parameters" not in offered
    assert offered["frozen_parameters"].title == "freeze Net.backbone: no optimizer uses the gradients"


def test_unused_gradients_that_were_not_left_out_are_estimated_with_less_confidence() -> None:
    context = run(unused_gradients=unused(None))
    cause = found(unused_gradients(context))
    # Half of nine tenths of the backward pass, which takes 0.6 of the step.
    assert cause.share == pytest.approx(0.5 * 0.9 * 0.6, abs=0.02) and cause.confidence == 0.5
    assert cause.evidence[1].text.endswith("estimated from the number of parameters, since the model is compiled")
    gain = remedies(context)["frozen_parameters"].gain
    assert gain.low < 1.03 and gain.high > 2


def test_a_smaller_norm_changes_what_is_learned() -> None:
    offered = remedies(run(unused_gradients=unused(None, clipped=True)))
    assert offered["frozen_clipped_parameters"].semantic_class == OPTIMISATION and "frozen_parameters" not in offered


@pytest.mark.parametrize("one", [tried(0.02), tried(0.2, low=-0.01), tried(-0.1)])
def test_gradients_whose_absence_gains_nothing_are_no_fault(one: Any) -> None:
    assert unused_gradients(run(unused_gradients=unused(tried=one))) is None


def test_used_gradients_are_no_fault_and_unknown_ones_are_not_judged() -> None:
    assert unused_gradients(run(unused_gradients=None)) is None
    assert isinstance(unused_gradients(run(unused_gradients="the model is compiled")), NotMeasured)
    assert unused_gradients(run(starved(), unused_gradients=unused(0.4))) is None


def test_a_trial_leaves_unused_gradients_out_unless_something_may_need_them() -> None:
    wanted = {"used_gradients": True}
    assert remedies(run(unused_gradients=unused()))["frozen_parameters"].settings == wanted
    assert remedies(run(unused_gradients=unused(None)))["frozen_parameters"].settings == wanted  # no time to try it
    assert remedies(run(unused_gradients=unused(needed=True)))["frozen_parameters"].settings == {}
    assert remedies(run(unused_gradients=unused(clipped=True)))["frozen_clipped_parameters"].settings == {}


def test_discarded_gradients_are_named_with_their_lines_and_their_measured_cost() -> None:
    context = run(discarded_gradients=discarded(0.2))
    cause = found(discarded_gradients(context))
    assert cause.share == pytest.approx(0.2, abs=0.02) and cause.confidence == 0.9
    assert [one.text for one in cause.evidence] == [
        "4 backward passes from train.py:27 computed gradients of 620 parameters, 600 of them in vain (Net.critic)",
        "7 blocks of 8 steps without these gradients took 25 ms a step, as it is 31 ms",
    ]
    assert verdict(context, judge(context)[0]) == (
        "Gradients of Net.critic are set to zero before they are used: computing them takes 20% of the time."
    )
    offered = remedies(context)["kept_gradients"]
    assert offered.semantic_class == IDENTICAL and offered.settings == {"kept_gradients": True}
    assert "requires_grad_(False)" in offered.how and "detach()" in offered.how


def test_discarded_gradients_that_were_not_left_out_are_estimated() -> None:
    context = run(discarded_gradients=discarded(None))
    cause = found(discarded_gradients(context))
    # A quarter of the backward pass, which takes 0.6 of the step.
    assert cause.share == pytest.approx(0.5 * 0.5 * 0.6, abs=0.02) and cause.confidence == 0.5
    offered = remedies(context)["kept_gradients"]
    assert offered.gain.low < 1.03 and offered.basis.endswith("not measured, since the training ended before")
    kept = remedies(run(discarded_gradients=discarded(None, needed=True)))["kept_gradients"]
    assert kept.settings == {}


def test_a_gain_of_fewer_gradients_that_the_noise_hides_counts_with_less_confidence() -> None:
    context = run(discarded_gradients=discarded(tried=tried(0.2, low=-0.01)))
    cause = found(discarded_gradients(context))
    assert cause.share == pytest.approx(0.2, abs=0.02) and cause.confidence == 0.5
    gain = remedies(context)["kept_gradients"].gain
    assert gain.low <= 1.0 < gain.predicted
    assert discarded_gradients(run(discarded_gradients=discarded(tried=tried(-0.1)))) is None


def test_what_is_not_discarded_or_not_known_is_not_judged() -> None:
    assert discarded_gradients(run(discarded_gradients=None)) is None
    assert discarded_gradients(run(discarded_gradients=discarded(tried=tried(0.02)))) is None
    answer = discarded_gradients(run(discarded_gradients="the model is compiled"))
    assert isinstance(answer, NotMeasured) and answer.because == "the model is compiled"
