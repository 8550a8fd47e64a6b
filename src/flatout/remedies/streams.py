"""The remedy for streams that prepare more samples than they give."""

from __future__ import annotations

from flatout.predict.context import Context
from flatout.predict.fetch_changes import DECODE_GROUPS, TRANSFORM_GROUPS, files_thrown_away, without_groups
from flatout.predict.pipeline import Change
from flatout.remedies.proposal import IDENTICAL, Proposal, remedy
from flatout.results import Cause


@remedy(("cpu_decode", "cpu_transform"), IDENTICAL, risk="low")
def select_first(context: Context, cause: Cause) -> Proposal | None:
    """Choose the samples of a stream before they are decoded."""
    loader = context.run.loading
    files = files_thrown_away(loader) if loader is not None else None
    if loader is None or files is None:
        return None
    groups = (*DECODE_GROUPS, *TRANSFORM_GROUPS)
    return Proposal(
        title="select the samples of the stream before they are decoded",
        change=without_groups(loader, groups, 1.0 - 1.0 / files),
        least=Change(),
        most=without_groups(loader, groups),
        how="if not wanted(row): continue, before Image.open(row.path); in a chain of steps, the filter first",
        basis=f"measured: {files:.1f} files are opened for each sample; assumes that one file makes a sample, and that "
        "what is known before decoding decides",
        memory_bytes=0,
    )
