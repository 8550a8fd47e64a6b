"""What the user's own functions make of the same sample, kept from pass to pass."""

from __future__ import annotations

import re
from pathlib import PurePath

from flatout.measure.loader_stats import LoaderStats
from flatout.predict.context import Context
from flatout.predict.pipeline import Change
from flatout.probe.settings import SETTINGS
from flatout.remedies.preparation import MEMORY_SHARE, decoded_bytes
from flatout.remedies.proposal import IDENTICAL, Proposal, remedy
from flatout.remedies.reporting import listed, setting_name
from flatout.remedies.volumes import cut_from_volumes
from flatout.results import Cause
from flatout.units import size

_CAUSES = (
    "cpu_decode",
    "cpu_transform",
    "cpu_tokenise",
    "cpu_read",
    "row_lookup",
    "storage_latency",
    "small_files",
    "read_amplification",
    "no_workers",
    "too_few_workers",
    "lock_contention",
    "sample_skew",
    "slow_collate",
)
# Of a fetch's time on a core, or of its blocked time: less is not worth the look-up.
_LEAST_SHARE = 0.3
_MOST = 4
# Part of a call that finding and copying its result takes.
_LEFT = 0.1


@remedy(_CAUSES, IDENTICAL, risk="medium", mechanics="shared_samples")
def samples_memoized(context: Context, cause: Cause) -> Proposal | None:
    """Keep what functions return for the same sample, where passes repeat and all of it fits into memory."""
    loader, available = context.run.loading, context.run.usage.available_bytes
    if loader is None or available is None or loader.delivery.epochs_started < 1 or cut_from_volumes(loader):
        return None
    functions = [one for one in loader.functions.called if max(one.cpu_share, one.blocked_share) >= _LEAST_SHARE]
    functions = functions[:_MOST]
    text = ",".join(setting_name(one.file, one.name) for one in functions)
    needed, room = _needed_bytes(loader), int(MEMORY_SHARE * available)
    if not re.fullmatch(SETTINGS["memoize"].form, text) or needed is None or needed > room:
        return None
    outer, names = functions[0], listed([one.name for one in functions], "or")
    return Proposal(
        title=f"memoize what {names} ({PurePath(outer.file).name}) returns for each sample: {size(needed)} of memory",
        change=_without(loader, *outer.below, 1.0 - _LEFT),
        least=Change(),
        most=_without(loader, outer.cpu_share, outer.blocked_share, 1.0),
        how="functools.cache, or a dictionary by the sample's index, around what is not random; filled before workers "
        "are forked",
        settings={"sample_cache_bytes": room, "memoize": text},
        basis=(
            "measured share of what the outermost function calls, at most of all of it, from the second pass on; which "
            "of them return the same each time, a trial finds by asking twice"
        ),
        memory_bytes=needed,
    )


def _without(loader: LoaderStats, cpu_share: float, blocked_share: float, part: float) -> Change:
    return Change(
        fetch_cpu_factor=1.0 - part * cpu_share,
        fetch_blocked_factor=1.0 - part * blocked_share,
    )


def _needed_bytes(loader: LoaderStats) -> int | None:
    """All samples of a pass: as batches hold them, or decoded if that is more; None: number or size is unknown."""
    delivery, samples = loader.delivery, loader.settings.dataset_len
    if not samples or not delivery.batch_bytes or not delivery.samples:
        return None
    each = delivery.batch_bytes * delivery.batches / delivery.samples
    return max(round(each * samples), decoded_bytes(loader) or 0)
