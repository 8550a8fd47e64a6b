"""What the user's own functions make of the same sample, kept from pass to pass."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from flatout.measure.input_functions import InputFunction
from flatout.measure.loader_stats import LoaderStats
from flatout.predict.context import Context
from flatout.predict.fetch_changes import (
    DECODE_GROUPS,
    LOOKUP_GROUPS,
    READ_GROUPS,
    TRANSFORM_GROUPS,
    cpu_share,
    in_first_pass,
    reads_again,
    repeats_within_pass,
    samples_there_are,
    storage_share,
)
from flatout.predict.pipeline import Change
from flatout.predict.step_changes import shorter_step
from flatout.probe.settings import SETTINGS
from flatout.remedies.decoding import MEMORY_SHARE, decoded_bytes
from flatout.remedies.proposal import IDENTICAL, Proposal, remedy
from flatout.remedies.reporting import listed, setting_name
from flatout.remedies.volumes import cut_from_volumes
from flatout.results import Cause
from flatout.units import size

# What keeping samples, or what they are made of, takes away.
MAKING_SAMPLES = (
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
    "sample_skew",
)
_CAUSES = (*MAKING_SAMPLES, "lock_contention", "slow_collate", "own_input", "interpreter_lock")
# Of a fetch's time on a core, or of its blocked time: less is not worth the look-up.
_LEAST_SHARE = 0.3
_MOST = 4
_ITERATORS = ("__iter__", "__next__")  # which give something else each time
_BY_INDEX = ("__getitem__", "__getitems__")  # within a pass, no call of these repeats
_READING = (*DECODE_GROUPS, *READ_GROUPS, *LOOKUP_GROUPS)
# Of a fetch's time on a core: a data set that changes its samples spends more than this on doing so.
_RANDOM = 0.1
# Part of a call that finding and copying its result takes.
_LEFT, _LEAST_LEFT = 0.1, 0.05
_HOW = "functools.cache, or a dictionary by the sample's index, around what is not random"
_WITHIN = "files that are read again within a pass; whether they give the same each time, a trial finds by asking twice"
_BASIS = "from the second pass on; which of them return the same each time, a trial finds by asking twice"


@remedy(_CAUSES, IDENTICAL, risk="medium", mechanics="shared_samples")
def samples_memoized(context: Context, cause: Cause) -> Proposal | None:
    """Keep what functions return for the same sample, where passes repeat and all of it fits into memory.

    Within a first pass calls may repeat too, as where few objects are drawn from again and again: a trial finds out.
    """
    loader, available = context.run.loading, context.run.usage.available_bytes
    if available is None:
        return None
    if loader is None:
        return _of_own_input(context, cause, int(MEMORY_SHARE * available))
    if cut_from_volumes(loader):
        return None
    again, within = reads_again(loader) and not in_first_pass(loader), repeats_within_pass(loader)
    functions = [one for one in _costly(loader.functions.called) if again or _last_name(one) not in _BY_INDEX]
    needed, room = _needed_bytes(loader) if again else 0, int(MEMORY_SHARE * available)
    settings = _settings(functions, room)
    if settings is None or needed is None or needed > room:
        return None
    outer = functions[0]
    title = f"memoize what {_titled(functions)} returns"
    return Proposal(
        title=f"{title} for each sample: {size(needed)} of memory" if again else f"{title}, in case calls repeat",
        change=_without(loader, *_same(loader, outer, not again), 1.0 - _LEFT) if again or within else Change(),
        least=Change(),
        most=_without(loader, outer.cpu_share, outer.blocked_share, 1.0 - _LEAST_LEFT),
        how=f"{_HOW}; filled before workers are forked",
        settings=settings,
        basis=f"measured share of what the outermost function calls, reads and parses, at most of all of it, {_BASIS}"
        if again or not within
        else f"measured share of the outermost function, and {_WITHIN}",
        memory_bytes=needed if again else None,
    )


def _of_own_input(context: Context, cause: Cause, room: int) -> Proposal | None:
    """The same for input without a DataLoader, of which it is not known whether calls repeat."""
    functions = _costly(context.run.input_functions)
    settings = _settings(functions, room)
    if settings is None:
        return None
    waited_s = context.run.seconds("batch_wait") / context.model.batches
    if cause.id == "interpreter_lock":
        waited_s = cause.share * context.model.now.total_s
    outer = functions[0]
    return Proposal(
        title=f"memoize what {_titled(functions)} returns: up to {size(room)} of memory",
        change=shorter_step((1.0 - _LEFT) * max(outer.below) * waited_s),
        least=Change(),
        most=shorter_step(waited_s),
        how=_HOW,
        settings=settings,
        basis=f"measured share of what the outermost function calls, at most of all of it, if calls repeat, {_BASIS}",
        memory_bytes=None,
    )


def _costly(functions: Sequence[InputFunction]) -> list[InputFunction]:
    return [one for one in functions if max(one.cpu_share, one.blocked_share) >= _LEAST_SHARE][:_MOST]


def _returning(functions: Sequence[InputFunction]) -> list[InputFunction]:
    """Without those that give something else each time."""
    return [one for one in functions if _last_name(one) not in _ITERATORS]


def _last_name(function: InputFunction) -> str:
    return function.name.rpartition(".")[2]


def _settings(functions: Sequence[InputFunction], room: int) -> dict[str, str | int] | None:
    """What memoizes functions; None: there are none, or one has a name that cannot be given."""
    text = ",".join(setting_name(one.file, one.name) for one in _returning(functions))
    return {"sample_cache_bytes": room, "memoize": text} if re.fullmatch(SETTINGS["memoize"].form, text) else None


def _titled(functions: Sequence[InputFunction]) -> str:
    return f"{listed([one.name for one in _returning(functions)], 'or')} ({PurePath(functions[0].file).name})"


def _same(loader: LoaderStats, outer: InputFunction, of_file: bool) -> tuple[float, float]:
    """Shares, on a core and blocked, of what a function takes to return the same as before.

    That is what it calls of the user's; where nothing of a fetch looks random, also what it reads and parses. Of one
    that reads the same files again and again within a pass, and does not know the sample: all.

    Args:
        loader: whose fetches call it.
        outer: the function.
        of_file: it is such a one.
    """
    if of_file and cpu_share(loader, _READING) + storage_share(loader) >= outer.cpu_share / 2:
        return outer.cpu_share, outer.blocked_share
    on_core, blocked = outer.below
    if not loader.fetch.transforms and cpu_share(loader, TRANSFORM_GROUPS) < _RANDOM:
        on_core = max(on_core, min(outer.cpu_share, cpu_share(loader, _READING)))
        blocked = max(blocked, min(outer.blocked_share, storage_share(loader)))
    return on_core, blocked


def _without(loader: LoaderStats, cpu_share: float, blocked_share: float, part: float) -> Change:
    return Change(
        fetch_cpu_factor=1.0 - part * cpu_share,
        fetch_blocked_factor=1.0 - part * blocked_share,
    )


def _needed_bytes(loader: LoaderStats) -> int | None:
    """All samples of a pass: as batches hold them, or decoded if that is more; None: number or size is unknown."""
    delivery, samples = loader.delivery, samples_there_are(loader)
    if not samples or not delivery.batch_bytes or not delivery.samples:
        return None
    each = delivery.batch_bytes * delivery.batches / delivery.samples
    return max(round(each * samples), decoded_bytes(loader) or 0)
