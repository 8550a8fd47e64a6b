"""Causes in what workers compute: the cores, not the storage, set the rate."""

from __future__ import annotations

from dataclasses import replace

from flatout.diagnose.cause import Found, Lacks, cause
from flatout.diagnose.evidence import hottest, split
from flatout.diagnose.sentences import what_workers_do, what_workers_do_for, what_workers_do_most
from flatout.measure.loader_stats import LoaderStats
from flatout.measure.thresholds import DOMINANT_SHARE, NOISE_SHARE
from flatout.predict.context import Context
from flatout.predict.fetch_changes import (
    DECODE_GROUPS,
    LOOKUP_GROUPS,
    READ_GROUPS,
    TOKENISE_GROUPS,
    TRANSFORM_GROUPS,
    cpu_share,
    files_thrown_away,
    helped,
    scans_tables,
    shrinking_share,
    without_groups,
)
from flatout.predict.pipeline import Change
from flatout.results import Evidence
from flatout.units import duration, percent

_GROUP_WORDS = {
    "decode": "decoding",
    "decompress": "decompressing",
    "transform": "in transforms",
    "convert": "converting arrays",
    "lookup": "looking rows up",
    "tokenise": "tokenising",
    "read": "reading",
    "other": "in the data set's own code",
}


@cause(
    "waiting",
    needs_loader=True,
    sentence=what_workers_do,
)
def cpu_decode(context: Context) -> Found | Lacks | None:
    """Decoding or decompressing files uses the time of the cores that fetch."""
    return _preparation(context, DECODE_GROUPS, "decoding files uses up the time of the fetching cores")


@cause(
    "waiting",
    needs_loader=True,
    sentence=what_workers_do_for(TRANSFORM_GROUPS, "transforming and converting samples"),
)
def cpu_transform(context: Context) -> Found | Lacks | None:
    """Resizing, augmenting and the data set's own code use the time of the cores that fetch."""
    return _preparation(context, TRANSFORM_GROUPS, "transforms use up the time of the fetching cores")


@cause(
    "waiting",
    needs_loader=True,
    sentence=what_workers_do_most(*TOKENISE_GROUPS),
)
def cpu_tokenise(context: Context) -> Found | Lacks | None:
    """Cutting text into tokens uses the time of the cores that fetch."""
    return _preparation(context, TOKENISE_GROUPS, "tokenising text uses up the time of the fetching cores")


@cause(
    "waiting",
    needs_loader=True,
    sentence=what_workers_do_most(*READ_GROUPS),
)
def cpu_read(context: Context) -> Found | Lacks | None:
    """Reading computes: a database searches, a file format in Python is parsed, bytes are copied out of memory."""
    scans = context.loader.functions.mostly_searches and scans_tables(context.run, context.loader)
    title = "each query goes through its table" if scans else "reading uses up the time of the fetching cores"
    return _preparation(context, READ_GROUPS, title)


@cause(
    "waiting",
    needs_loader=True,
    # A row of an array costs a thousandth: more workers would only share out the waste.
    hides=("no_workers", "too_few_workers"),
    hides_from=DOMINANT_SHARE,
    sentence=what_workers_do_most(*LOOKUP_GROUPS),
)
def row_lookup(context: Context) -> Found | Lacks | None:
    """Rows are taken one by one out of a table in memory, such as a data frame."""
    return _preparation(context, LOOKUP_GROUPS, "rows are looked up one by one in a table")


def _slowest_transform(loader: LoaderStats) -> tuple[Evidence, ...]:
    """The transform that costs most, where the pipeline's parts were timed."""
    if not loader.fetch.transforms or not len(loader.fetch.item_s):
        return ()
    part = max(loader.fetch.transforms, key=lambda transform: transform.calls * transform.mean_s)
    share = min(part.calls * part.mean_s / float(loader.fetch.item_s.mean()), 1.0)
    size = f" on {part.pixels_in:,.0f} pixels" if part.pixels_in else ""
    return (
        Evidence(
            f"{part.name} takes {duration(part.mean_s)}{size}: {percent(share)} of the time of a sample",
            {"transform": part.name, "seconds": part.mean_s, "pixels": part.pixels_in, "share": share},
        ),
    )


def _thrown_away(loader: LoaderStats) -> tuple[Evidence, ...]:
    files = files_thrown_away(loader)
    if files is None:
        return ()
    text = f"the stream opens {files:.1f} files for each sample that reaches the training"
    return (Evidence(text, {"files_per_sample": files}),)


def _shrunk(loader: LoaderStats, share: float) -> tuple[Evidence, ...]:
    if share < NOISE_SHARE:
        return ()
    resize = loader.fetch.transforms[0]
    text = (
        f"Resize makes {resize.pixels_out:,.0f} pixels of {resize.pixels_in:,.0f}: with the decoding at full size, "
        f"another {percent(share)} of a fetch"
    )
    return (Evidence(text, {"pixels": resize.pixels_in, "kept_pixels": resize.pixels_out, "share": share}),)


def _preparation(context: Context, groups: tuple[str, ...], title: str) -> Found | Lacks | None:
    run, loader, model = context.run, context.loader, context.model
    wait = run.ledger.share("batch_wait")
    if wait < NOISE_SHARE and model.now.core_wait_share < NOISE_SHARE:
        return None
    parts = split(loader)
    if parts.cpu is None:
        return Lacks("CPU time of the fetching threads was not measured")
    # Removing all of the CPU time bounds the gain from any single function group.
    everything = Change(fetch_cpu_factor=0.0, fetch_blocked_factor=0.0 if helped(loader) else 1.0)
    if model.recovered(everything) < NOISE_SHARE:
        return None
    if not (loader.functions.cpu_groups or loader.functions.collate_groups):
        return Lacks("no stack samples of the fetching threads: what they compute is not known")
    group = cpu_share(loader, groups)
    change = without_groups(loader, groups)
    shrinking = shrinking_share(loader)
    if groups in (DECODE_GROUPS, TRANSFORM_GROUPS):  # a file decoded at full size costs both
        moved = shrinking if groups == DECODE_GROUPS else -shrinking
        group += moved
        change = replace(change, fetch_cpu_factor=max(change.fetch_cpu_factor - moved, 0.0))
    share = model.recovered(change)
    if share < NOISE_SHARE:
        return None
    named = max(groups, key=lambda name: loader.functions.cpu_groups.get(name, 0.0))
    package = loader.functions.packages.get(named)
    by = f" ({package})" if package else ""
    lines = loader.functions.lines_of_group.get(named, ())
    if not lines and named == max(loader.functions.cpu_groups, key=loader.functions.cpu_groups.__getitem__, default=""):
        lines = loader.functions.cpu_lines
    return Found(
        title=title,
        share=share,
        confidence=0.6 if named == "other" else 0.85,
        evidence=(
            Evidence(
                f"{percent(group)} of the CPU time of fetches, most of it {_GROUP_WORDS[named]}{by}",
                {"group_share": group, "group": named, "batch_wait": wait},
            ),
            parts.evidence(),
            *_thrown_away(loader),
            *(_shrunk(loader, shrinking) if groups == DECODE_GROUPS else ()),
            *(_slowest_transform(loader) if groups == TRANSFORM_GROUPS else ()),
            *hottest(lines),
        ),
    )
