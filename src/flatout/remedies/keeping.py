"""Whole samples kept from pass to pass, of data sets that give the same each time."""

from __future__ import annotations

import re

from flatout.measure.loader_stats import LoaderStats, mean_s
from flatout.predict.context import Context
from flatout.predict.pipeline import Change
from flatout.remedies.decoding import MEMORY_SHARE, wanted_room
from flatout.remedies.memoizing import MAKING_SAMPLES
from flatout.remedies.proposal import IDENTICAL, Proposal, remedy
from flatout.results import Cause
from flatout.units import size

# Finding and copying a stored sample: 12 us for one of up to 12 kB, 50 us of 150 kB, 340 us of 600 kB, the medians of
# five passes on one CPU.
_FOUND_S, _COPIED_BPS = 1.2e-5, 1.8e9
_MOST_LEFT = 0.5  # of a fetch
_RANDOM = re.compile("rand|jitter|noise|erasing|augment|mix|flip|dropout|shuffle", re.IGNORECASE)


@remedy(MAKING_SAMPLES, IDENTICAL, risk="medium", mechanics="shared_samples")
def samples_once(context: Context, cause: Cause) -> Proposal | None:
    """Keep what the data set gives for each index, where it gives the same each time."""
    run = context.run
    loader, available, same = run.loading, run.usage.available_bytes, run.last_steps.same_samples
    if loader is None or available is None or not loader.settings.collates or same is False:
        return None
    samples, delivery = loader.settings.dataset_len, loader.delivery
    if not samples or not delivery.batch_bytes or not delivery.samples or not delivery.batches:
        return None
    if same is None and not _looks_fixed(loader):
        return None
    sample_bytes = delivery.batch_bytes * delivery.batches / delivery.samples
    room, needed = int(MEMORY_SHARE * available), round(samples * sample_bytes)
    each_s = mean_s(loader.fetch.wall_s) * delivery.batches / delivery.samples
    left = (_FOUND_S + sample_bytes / _COPIED_BPS) / each_s if each_s > 0 else 1.0
    if needed > room or left >= _MOST_LEFT:
        return None

    def to(part: float) -> Change:
        return Change(fetch_cpu_factor=part, fetch_blocked_factor=part)

    return Proposal(
        title=f"keep what the data set gives for each sample: {size(needed)} of memory hold them all",
        change=to(left),
        least=to(min(3 * left, _MOST_LEFT)) if same else Change(),
        most=to(left / 2),
        how="self.samples = [self.make(index) for index in range(len(self))] in Dataset.__init__, or a dictionary by "
        "the index; filled before workers are forked",
        settings={"sample_cache_bytes": wanted_room(needed, room), "samples_once": True},
        basis="measured time of a fetch, from the second pass on; finding and copying were measured on another machine"
        + ("" if same else "; assumes that the data set gives the same each time, which a trial finds by asking twice"),
        memory_bytes=needed,
    )


def _looks_fixed(loader: LoaderStats) -> bool:
    """True if its transforms are known, and none has a name of one that draws random numbers."""
    parts = loader.fetch.transforms
    return bool(parts) and not any(_RANDOM.search(part.name) for part in parts)
