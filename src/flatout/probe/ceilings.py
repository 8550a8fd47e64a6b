"""Changes that ``flatout ceilings`` makes to an unmodified script: batches are replayed, or the loader runs alone.

Only loops that compute gradients are changed. Nothing here is active in a recording of any other command.
"""

# untested: only in trainings that flatout ends, which save no coverage

import collections
import itertools
import os
import weakref
from typing import Any

from torch import is_grad_enabled
from torch.utils.data import DataLoader

from . import events
from .contract import (
    CEILING_DEVICE,
    CEILING_SECONDS_VARIABLE,
    CEILING_SUPPLY,
    CEILING_VARIABLE,
    SUPPLY_COLD_METRIC,
    SUPPLY_WARM_METRIC,
)
from .identity import ByIdentity
from .metrics import note
from .recorder import REC, now

MODE = os.environ.get(CEILING_VARIABLE)  # None: nothing is changed
SECONDS = float(os.environ.get(CEILING_SECONDS_VARIABLE, "10"))
KEPT = 8  # batches that are replayed in turn
NOTE_EVERY_NS = 250_000_000

_kept: Any = ByIdentity()  # DataLoader -> its first batches


class _State:
    __slots__ = ("busy",)

    def __init__(self):
        self.busy = False  # the loaders that are made here are not changed


_state = _State()


def iterate(loader, original, samples_in, number_of):
    """The iterator that the script gets.

    Args:
        loader: the script's DataLoader.
        original: starts its own iterator, and records that.
        samples_in: counts the samples of a batch.
        number_of: the name id of a loader that was iterated before.
    """
    if MODE not in (CEILING_DEVICE, CEILING_SUPPLY) or _state.busy or not is_grad_enabled():
        return original(loader)
    if MODE == CEILING_DEVICE:
        return _Replay(loader, original, samples_in, number_of)
    _state.busy = True
    _run_alone(loader, samples_in)
    # There is nothing more to measure, and the script must not train on the remaining batches.
    raise SystemExit(0)


class _Replay:
    """Passes over the loader's first batches again and again, as often as a pass over the loader has batches."""

    def __init__(self, loader, original, samples_in, number_of):
        self._batches = _kept.setdefault(loader, [])
        self._loader, self._samples_in = weakref.ref(loader), samples_in
        self._source = original(loader) if len(self._batches) < KEPT else None
        self._number = number_of(loader)
        self._length = _length(loader)
        self._given = 0

    def __iter__(self):
        return self

    def __len__(self):
        return self._length if self._length is not None else 0

    def __next__(self):
        if self._length is not None and self._given >= self._length:
            self._source = None
            raise StopIteration
        if self._source is not None:
            batch = next(self._source)  # short passes end here
            if len(self._batches) < KEPT:
                self._batches.append(batch)
            if len(self._batches) >= KEPT:
                self._source = None
            self._given += 1
            return batch
        start = now()
        batch = self._batches[self._given % len(self._batches)]
        bits = events.batch_bits(self._samples_in(batch), -1, 0, is_grad_enabled())
        REC.emit(events.BATCH_WAIT, start, now(), self._number, self._given, bits)
        REC.iterations += 1
        self._given += 1
        return batch


def _length(loader):
    try:
        return len(loader)
    except Exception:  # an iterable data set has none
        return None


def _run_alone(loader, samples_in):
    """Take batches as fast as they come: new ones, then, where their indices are known, the same ones again."""
    taken: Any = collections.deque()
    batches = getattr(loader, "batch_sampler", None)
    again = batches is not None and getattr(loader, "_dataset_kind", 1) == 0
    count = _rate(_like(loader, _noting(batches, taken)) if again else loader, samples_in, SUPPLY_COLD_METRIC)
    if again and count:
        same = list(taken)[:count]
        _rate(_like(loader, itertools.chain.from_iterable(itertools.repeat(same))), samples_in, SUPPLY_WARM_METRIC)


def _noting(batches, taken):
    for indices in batches:
        taken.append(indices)
        yield indices


def _like(loader, batches):
    """A loader with other batches of the same data set, made in the same way."""
    settings = {
        name: getattr(loader, name)
        for name in ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "generator")
    }
    if loader.num_workers:
        settings["prefetch_factor"] = loader.prefetch_factor
        settings["multiprocessing_context"] = loader.multiprocessing_context
    return DataLoader(loader.dataset, batch_sampler=_Batches(batches), **settings)


class _Batches:
    """A batch sampler out of an iterator."""

    def __init__(self, batches):
        self._batches = batches

    def __iter__(self):
        return iter(self._batches)


def _rate(loader, samples_in, name):
    """Record samples/s from the first batch on, for SECONDS; return the number of batches."""
    count = samples = 0
    start = noted = 0
    for batch in loader:
        count += 1
        time = now()
        if count == 1:
            start = noted = time  # the workers have started
            continue
        samples += samples_in(batch)
        if time - noted > NOTE_EVERY_NS:
            noted = time
            note(name, samples * 1e9 / (time - start))
        if time - start > SECONDS * 1e9:
            break
    if count > 1:
        note(name, samples * 1e9 / max(now() - start, 1))
    return count
