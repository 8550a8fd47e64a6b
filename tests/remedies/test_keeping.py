"""Whole samples that are kept: for which data sets, and what that gives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flatout.measure.loader_stats import TransformCost
from flatout.measure.measured_run import MeasuredRun
from tests.diagnose.views import same_samples, saturated
from tests.remedies.test_remedies import offered


def transformed(view: MeasuredRun, *names: str) -> MeasuredRun:
    """The run with these transforms."""
    assert view.loading is not None
    parts = tuple(TransformCost(name, 1e-3, 0.0, 0.0) for name in names)
    fetch = replace(view.loading.fetch, transforms=parts)
    return replace(view, loading=replace(view.loading, fetch=fetch))


def test_samples_that_were_the_same_twice_are_to_be_kept() -> None:
    remedy = offered(same_samples(saturated()))["samples_once"]
    assert remedy.settings["samples_once"] is True and remedy.settings["sample_cache_bytes"] > 0
    assert remedy.mechanics == "shared_samples" and remedy.gain.predicted > 1.5
    assert "assumes that the data set gives the same" not in remedy.basis


def test_what_was_not_asked_may_be_kept_where_no_transform_looks_random() -> None:
    unknown = same_samples(saturated(), None)
    assert "samples_once" not in offered(unknown)
    assert "samples_once" not in offered(transformed(unknown, "Resize", "RandomHorizontalFlip", "ToTensor"))
    assert "samples_once" not in offered(transformed(unknown, "Resize", "GaussianNoise"))
    remedy = offered(transformed(unknown, "ToPILImage", "Pad", "Lambda"))["samples_once"]
    assert "assumes that the data set gives the same" in remedy.basis and remedy.gain.low <= 1.0


@pytest.mark.parametrize("why", ["random", "large", "other collate", "no length", "short fetches"])
def test_other_data_sets_are_not(why: str) -> None:
    view = same_samples(saturated(), why != "random")
    assert view.loading is not None
    if why == "large":
        view = replace(view, usage=replace(view.usage, available_bytes=1 << 20))
    if why == "other collate":
        view = replace(view, loading=replace(view.loading, settings=replace(view.loading.settings, collates=False)))
    if why == "no length":
        view = replace(view, loading=replace(view.loading, settings=replace(view.loading.settings, dataset_len=None)))
    if why == "short fetches":
        fetch = replace(view.loading.fetch, wall_s=view.loading.fetch.wall_s * 1e-5)
        view = replace(view, loading=replace(view.loading, fetch=fetch))
    assert "samples_once" not in offered(view)
