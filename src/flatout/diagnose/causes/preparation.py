"""Causes in what workers compute: the cores, not the storage, set the rate."""

from __future__ import annotations

from flatout.diagnose.causes.fetching import (
    DECODE_GROUPS,
    TRANSFORM_GROUPS,
    data_of,
    group_share,
    hottest,
    split,
)
from flatout.diagnose.result import Cause, Evidence, NotMeasured
from flatout.diagnose.thresholds import NOISE_SHARE
from flatout.diagnose.view import View
from flatout.diagnose.wording import percent
from flatout.predict.pipeline import Change

_GROUP_WORDS = {
    "decode": "decoding",
    "decompress": "decompressing",
    "transform": "in transforms",
    "convert": "converting arrays",
    "other": "in the data set's own code",
}


def cpu_decode(view: View) -> Cause | NotMeasured | None:
    """Decoding or decompressing files uses the time of the cores that fetch."""
    return _preparation(view, "cpu_decode", DECODE_GROUPS, "decoding files uses up the time of the fetching cores")


def cpu_transform(view: View) -> Cause | NotMeasured | None:
    """Resizing, augmenting and the data set's own code use the time of the cores that fetch."""
    return _preparation(view, "cpu_transform", TRANSFORM_GROUPS, "transforms use up the time of the fetching cores")


def _preparation(view: View, id: str, groups: tuple[str, ...], title: str) -> Cause | NotMeasured | None:
    data = data_of(view, id)
    if isinstance(data, NotMeasured):
        return data
    loading, model = data
    wait = view.ledger.share("batch_wait")
    if wait < NOISE_SHARE:
        return None
    parts = split(loading)
    if parts.cpu is None:
        return NotMeasured(id, "CPU time of the fetching threads was not measured")
    # All of the CPU time at once bounds what any group of functions can give back.
    if model.recovered(Change(fetch_cpu_factor=0.0)) < NOISE_SHARE:
        return None
    if not loading.cpu_groups:
        return NotMeasured(id, "no stack samples of the fetching threads: what they compute is not known")
    group = group_share(loading.cpu_groups, groups)
    share = model.recovered(Change(fetch_cpu_factor=1.0 - group))
    if share < NOISE_SHARE:
        return None
    named = max(groups, key=lambda name: loading.cpu_groups.get(name, 0.0))
    return Cause(
        id=id,
        title=title,
        share=share,
        confidence=view.confidence(0.6 if named == "other" else 0.85),
        evidence=(
            Evidence(
                f"{percent(group)} of the CPU time of fetches, most of it {_GROUP_WORDS[named]}",
                {"group_share": group, "group": named, "batch_wait": wait},
            ),
            parts.evidence(),
            *hottest(loading.cpu_lines),
        ),
    )
