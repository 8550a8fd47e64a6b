"""Causes in what workers compute: the cores, not the storage, set the rate."""

from __future__ import annotations

from flatout.diagnose.causes.fetching import data_of, hottest, split
from flatout.measure.loader_stats import LoaderStats
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.thresholds import NOISE_SHARE
from flatout.predict.fetch_changes import (
    DECODE_GROUPS,
    TRANSFORM_GROUPS,
    collate_share,
    group_share,
    helped,
    without_groups,
)
from flatout.predict.pipeline import Change
from flatout.results import Cause, Evidence, NotMeasured
from flatout.units import duration, percent

_GROUP_WORDS = {
    "decode": "decoding",
    "decompress": "decompressing",
    "transform": "in transforms",
    "convert": "converting arrays",
    "other": "in the data set's own code",
}


def cpu_decode(view: MeasuredRun) -> Cause | NotMeasured | None:
    """Decoding or decompressing files uses the time of the cores that fetch."""
    return _preparation(view, "cpu_decode", DECODE_GROUPS, "decoding files uses up the time of the fetching cores")


def cpu_transform(view: MeasuredRun) -> Cause | NotMeasured | None:
    """Resizing, augmenting and the data set's own code use the time of the cores that fetch."""
    return _preparation(view, "cpu_transform", TRANSFORM_GROUPS, "transforms use up the time of the fetching cores")


def _slowest_part(loading: LoaderStats, id: str) -> tuple[Evidence, ...]:
    """The transform that costs most, where the pipeline's parts were timed."""
    if id != "cpu_transform" or not loading.transforms or not len(loading.item_s):
        return ()
    part = max(loading.transforms, key=lambda transform: transform.calls * transform.mean_s)
    share = min(part.calls * part.mean_s / float(loading.item_s.mean()), 1.0)
    size = f" on {part.pixels_in:,.0f} pixels" if part.pixels_in else ""
    return (
        Evidence(
            f"{part.name} takes {duration(part.mean_s)}{size}: {percent(share)} of the time of a sample",
            {"transform": part.name, "seconds": part.mean_s, "pixels": part.pixels_in, "share": share},
        ),
    )


def _preparation(view: MeasuredRun, id: str, groups: tuple[str, ...], title: str) -> Cause | NotMeasured | None:
    data = data_of(view, id)
    if not isinstance(data, tuple):
        return data
    loading, model = data
    wait = view.ledger.share("batch_wait")
    if wait < NOISE_SHARE:
        return None
    parts = split(loading)
    if parts.cpu is None:
        return NotMeasured(id, "CPU time of the fetching threads was not measured")
    # All of the CPU time at once bounds what any group of functions can give back.
    everything = Change(fetch_cpu_factor=0.0, fetch_blocked_factor=0.0 if helped(loading) else 1.0)
    if model.recovered(everything) < NOISE_SHARE:
        return None
    if not loading.cpu_groups:
        return NotMeasured(id, "no stack samples of the fetching threads: what they compute is not known")
    group = group_share(loading.cpu_groups, groups) * (1.0 - collate_share(loading))
    share = model.recovered(without_groups(loading, groups))
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
            *_slowest_part(loading, id),
            # Lines are not told apart by group: they speak for the largest one.
            *(
                hottest(loading.cpu_lines)
                if named == max(loading.cpu_groups, key=loading.cpu_groups.__getitem__)
                else ()
            ),
        ),
    )
