"""Read only what a sample keeps."""

from __future__ import annotations

from flatout.predict.fetch_changes import read_bytes, reading_less, sample_bytes
from flatout.predict.pipeline import Change
from flatout.remedies.proposal import IDENTICAL, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    loading = case.view.loading
    if loading is None:
        return None
    used, read = sample_bytes(loading), read_bytes(case.view)
    if not used or not read:
        return None
    needless = max(0.0, 1.0 - used / read)

    def without(part: float) -> Change:
        return reading_less(loading, part * needless)

    return Proposal(
        title="store the data so that a sample can be read alone",
        # A chunk holds a little more than the sample: twice its bytes are read.
        change=without(0.8),
        least=without(0.4),
        most=without(1.0),
        how="numpy.memmap / np.load(path, mmap_mode='r')[slices], or zarr with chunks of about a sample's shape",
        basis="measured bytes read against bytes used",
        memory_bytes=0,
    )


ENTRY = RemedySpec("chunked_reading", ("read_amplification",), IDENTICAL, "medium", _propose)
