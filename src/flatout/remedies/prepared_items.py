"""Items of MONAI that are prepared once, up to the first random transform."""

from __future__ import annotations

import itertools

from flatout.measure.loader_stats import LoaderStats, TransformCost
from flatout.predict.context import Context
from flatout.predict.fetch_changes import collate_share, reads_again, samples_there_are
from flatout.predict.pipeline import Change
from flatout.probe.events import OF_MONAI
from flatout.remedies.proposal import IDENTICAL, Proposal, remedy
from flatout.results import Cause
from flatout.units import size

_MEMORY_SHARE = 0.5  # of what is left; the workers and the training keep the other half
_VALUE_BYTES = 4.0  # MONAI loads float32, whatever the file holds
# Part of the preparation that copying the stored item takes instead, usually and at the worst.
_COPIED, _MOST_COPIED = 0.1, 0.4
_ROOM_FOR_OTHERS, _LEAST_ROOM = 4, 1 << 30  # times what the training's items take; bytes


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
    item_s = float(loader.fetch.item_s.mean()) if len(loader.fetch.item_s) else 0.0
    if not beginning or item_s <= 0:
        return None
    needed, room = _needed_bytes(loader), int(_MEMORY_SHARE * available)
    if needed is not None and needed > room:
        return None
    share = min(sum(part.calls * part.mean_s for part in beginning) / item_s, 1.0) * (1.0 - collate_share(loader))
    last = beginning[-1].name.removeprefix(OF_MONAI)
    return Proposal(
        title=f"prepare each item once, up to {last}"
        + (f": {size(needed)} of memory hold them all" if needed is not None else ""),
        change=_without(share * (1.0 - _COPIED)),
        least=_without(share * (1.0 - _MOST_COPIED)),
        most=_without(share),
        how="monai.data.CacheDataset(data, transform, cache_rate=1.0) in place of Dataset; PersistentDataset keeps "
        "them on a disk",
        # Other sets, such as that of the validation, may take what is left of it.
        settings={
            "sample_cache_bytes": room if needed is None else min(room, max(_ROOM_FOR_OTHERS * needed, _LEAST_ROOM))
        },
        basis="measured time of the transforms before the first one that MONAI calls random, from the second pass on; "
        "assumes that copying what is stored takes a tenth of it, at worst two fifths",
        memory_bytes=needed,
    )


def same_beginning(loader: LoaderStats) -> list[TransformCost]:
    """The transforms before the first one that MONAI calls random; empty: the pipeline is not MONAI's."""
    return list(itertools.takewhile(lambda part: part.repeats, loader.fetch.transforms))


def _without(share: float) -> Change:
    """What is read for it goes as well."""
    return Change(fetch_cpu_factor=1.0 - share, fetch_blocked_factor=1.0 - share)


def _needed_bytes(loader: LoaderStats) -> int | None:
    """All items of a pass as they are loaded; None: their number or size is unknown."""
    arrays, items = loader.storage.arrays, samples_there_are(loader)
    return round(_VALUE_BYTES * arrays.values * items) if arrays is not None and items else None
