"""Read from a disk of this machine."""

from __future__ import annotations

from flatout.diagnose.causes.fetching import storage_share, without_reading
from flatout.predict.pipeline import Change
from flatout.remedies.proposal import IDENTICAL, Case, Entry, Proposal


def _propose(case: Case) -> Proposal | None:
    loading = case.view.loading
    if loading is None:
        return None
    return Proposal(
        title="copy the data set to a local disk",
        # A local SSD answers in about 0.1 ms where a network store takes 10 ms or more; the page cache in less.
        change=without_reading(loading, 0.95),
        least=Change(fetch_blocked_factor=1.0 - 0.5 * storage_share(loading)),
        most=without_reading(loading),
        how=f"flatout stage {loading.data_folder or 'FOLDER'} LOCAL, on a local SSD, and point the data set there",
        recipe="data.root=LOCAL_COPY",
        basis="measured blocked time in reads; assumes that a local disk leaves a twentieth of it",
        memory_bytes=0,
    )


ENTRY = Entry(
    "local_copy", ("storage_latency", "storage_bandwidth", "small_files", "cold_cache"), IDENTICAL, "low", _propose
)
