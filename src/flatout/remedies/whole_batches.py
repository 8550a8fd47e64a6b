"""Batches that are taken out of arrays at once, not put together of single samples."""

from __future__ import annotations

from flatout.measure.loader_stats import mean_s
from flatout.predict.context import Context
from flatout.predict.fetch_changes import (
    DECODE_GROUPS,
    LOOKUP_GROUPS,
    READ_GROUPS,
    TOKENISE_GROUPS,
    cpu_share,
    storage_share,
)
from flatout.predict.pipeline import Change
from flatout.remedies.proposal import IDENTICAL, Proposal, remedy
from flatout.results import Cause
from flatout.units import duration

# Of a fetch, for each sample: what takes longer is work on the sample, which whole batches need as well.
_MOST_S = 1e-4
_MOST_BYTES = 4096  # that a batch holds for each sample: larger ones take time to copy
_LEAST_SAMPLES = 16  # in a batch
_OTHER_WORK = 0.2  # of a fetch, in reading, decoding, tokenising and tables, which have remedies of their own
# Part of a fetch that one access for all samples leaves: usually, at the least and at the most.
_LEFT, _LEAST_LEFT, _MOST_LEFT = 0.1, 0.03, 0.5


@remedy(("no_workers", "too_few_workers", "slow_collate", "cpu_transform"), IDENTICAL, risk="low")
def whole_batches(context: Context, cause: Cause) -> Proposal | None:
    """Take a batch out of arrays with one index, where samples are a few numbers each."""
    loader = context.run.loading
    if loader is None or loader.fetch.transforms or not loader.delivery.batches:
        return None
    samples = loader.delivery.samples / loader.delivery.batches
    if samples < _LEAST_SAMPLES or (loader.delivery.batch_bytes or 0) > _MOST_BYTES * samples:
        return None
    each_s = mean_s(loader.fetch.wall_s) / samples
    other = cpu_share(loader, (*READ_GROUPS, *DECODE_GROUPS, *TOKENISE_GROUPS, *LOOKUP_GROUPS))
    other += storage_share(loader) * mean_s(loader.fetch.blocked_s) / max(mean_s(loader.fetch.wall_s), 1e-9)
    if not 0 < each_s <= _MOST_S or other > _OTHER_WORK:
        return None
    return Proposal(
        title=f"take the {loader.settings.batch_size or samples:,.0f} samples of a batch with one index",
        change=Change(fetch_cpu_factor=_LEFT),
        least=Change(fetch_cpu_factor=_MOST_LEFT),
        most=Change(fetch_cpu_factor=_LEAST_LEFT),
        how="DataLoader(data, sampler=BatchSampler(RandomSampler(data), size, False), batch_size=None), which asks for "
        "data[[3, 1, 4]]: a TensorDataset, or a Dataset of your own with tensors, answers with a batch",
        basis=f"measured time of a fetch, {duration(each_s)} a sample; assumes that one access to arrays leaves a "
        "tenth of it, at worst half",
        memory_bytes=0,
        settings={"samples_at_once": True},
    )
