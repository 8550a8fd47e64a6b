"""Items of MONAI that are prepared once, up to the first random transform."""

from __future__ import annotations

from flatout.measure.loader_stats import LoaderStats
from flatout.predict.context import Context
from flatout.predict.fetch_changes import collate_share, reads_again, same_beginning, samples_there_are
from flatout.predict.pipeline import Change
from flatout.probe.events import OF_MONAI
from flatout.remedies.decoding import MEMORY_SHARE, MOST_PUT_BACK, PUT_BACK, share_of_fetch, wanted_room
from flatout.remedies.proposal import IDENTICAL, Proposal, remedy
from flatout.results import Cause
from flatout.units import size

_VALUE_BYTES = 4.0  # MONAI loads float32, whatever the file holds


@remedy(
    ("cpu_decode", "cpu_transform", "read_amplification", "no_workers", "too_few_workers"),
    IDENTICAL,
    risk="medium",
    mechanics="shared_samples",
)
def prepared_once(context: Context, cause: Cause) -> Proposal | None:
    """Keep what MONAI's transforms before the first random one make of an item in memory that all workers share."""
    loader, available = context.run.loading, context.run.usage.available_bytes
    if loader is None or available is None or not reads_again(loader):
        return None
    beginning = same_beginning(loader)
    if not beginning:
        return None
    needed, room = _needed_bytes(loader), int(MEMORY_SHARE * available)
    if needed is not None and needed > room:
        return None
    share = share_of_fetch(loader, beginning) * (1.0 - collate_share(loader))
    last = beginning[-1].name.removeprefix(OF_MONAI)
    return Proposal(
        title=f"prepare each item once, up to {last}"
        + (f": {size(needed)} of memory hold them all" if needed is not None else ""),
        change=_without(share * (1.0 - PUT_BACK)),
        least=_without(share * (1.0 - MOST_PUT_BACK)),
        most=_without(share),
        how="monai.data.CacheDataset(data, transform, cache_rate=1.0) in place of Dataset; PersistentDataset keeps "
        "them on a disk",
        settings={"sample_cache_bytes": room if needed is None else wanted_room(needed, room)},
        basis="measured time of the transforms before the first one that MONAI calls random, from the second pass on; "
        "assumes that copying what is stored takes a tenth of it, at worst two fifths",
        memory_bytes=needed,
    )


def _without(share: float) -> Change:
    """What is read for it goes as well."""
    return Change(fetch_cpu_factor=1.0 - share, fetch_blocked_factor=1.0 - share)


def _needed_bytes(loader: LoaderStats) -> int | None:
    """All items of a pass as they are loaded; None: their number or size is unknown."""
    arrays, items = loader.storage.arrays, samples_there_are(loader)
    return round(_VALUE_BYTES * arrays.values * items) if arrays is not None and items else None
