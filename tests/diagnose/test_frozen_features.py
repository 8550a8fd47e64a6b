"""Features of modules that do not train: when they are a fault, and what keeping them gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flatout.diagnose.causes.frozen_features import frozen_features
from flatout.diagnose.ranking import judge
from flatout.diagnose.verdict import verdict
from flatout.measure.frozen_modules import FrozenModule
from flatout.predict.context import Context
from flatout.results import NotMeasured
from tests.diagnose.test_causes_unneeded_work import found, remedies, run
from tests.diagnose.views import frozen, healthy, starved

ROOM = {"usage": {"available_bytes": 1 << 30}}


def trained(view: Any = None, **changes: Any) -> Context:
    """A step of 10 ms, 3 ms of it the forward pass."""
    return run(healthy(**ROOM) if view is None else view, frozen_modules=frozen(**changes))


def test_a_backbone_is_named_with_the_time_of_its_calls() -> None:
    context = trained(seconds=0.002)
    cause = found(frozen_features(context))
    assert cause.share == pytest.approx(0.2, abs=0.02) and cause.confidence == 0.8
    assert cause.title == "Net.backbone does not train, and computes the same features in every pass"
    assert cause.evidence[1].text == "the data set gave the same samples when it was asked twice"
    assert verdict(context, judge(context)[0]).startswith("Net.backbone does not train")


def test_no_more_than_the_forward_pass_of_the_window_is_won() -> None:
    long, longer = found(frozen_features(trained(seconds=0.02))), found(frozen_features(trained(seconds=0.2)))
    assert long.share == longer.share < 0.5


def test_random_samples_are_no_fault_and_unknown_ones_lower_the_confidence() -> None:
    assert frozen_features(trained(same=False)) is None
    known = healthy(**ROOM, dataset_len=10_000)
    assert found(frozen_features(trained(known, same=None))).confidence == 0.5
    gain = remedies(trained(known, same=None))["features_once"].gain
    assert gain.low < 1.03 < gain.predicted


def test_the_target_network_of_a_game_is_no_fault() -> None:
    assert frozen_features(trained(same=None)) is None  # a stream
    assert frozen_features(trained(replace(healthy(**ROOM), loading=None), same=None)) is None


def test_little_of_a_step_is_no_fault() -> None:
    assert frozen_features(trained(seconds=0.0005)) is None
    assert frozen_features(run(healthy(**ROOM), frozen_modules=None)) is None
    assert frozen_features(trained(starved())) is None


def test_features_are_kept_where_they_fit_and_one_module_makes_them() -> None:
    offered = remedies(trained())["features_once"]
    assert offered.settings == {"sample_cache_bytes": 1 << 29, "features_once": "Net.backbone"}
    assert offered.semantic_class == "numerics"
    two = (FrozenModule("Net.a", 0.002, 1.0, 2048.0), FrozenModule("Net.b", 0.002, 1.0, 2048.0))
    by_hand = remedies(trained(modules=two))["features_once"]
    assert by_hand.settings == {} and "in place of the samples" in by_hand.how
    large = (FrozenModule("Net.backbone", 0.004, 1.0, 1e6),)
    assert "features_once" not in remedies(trained(healthy(**ROOM, dataset_len=10_000), modules=large))


def test_no_step_no_answer() -> None:
    context = replace(trained(), fitted=None)
    assert isinstance(frozen_features(context), NotMeasured)
