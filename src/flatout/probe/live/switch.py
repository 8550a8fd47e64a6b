"""Other settings for a DataLoader in the middle of a pass: its iterator hands over to another one, under the training.

The training keeps its iterator. A new one, with the wanted settings, takes over the rest of the sampler's indices; what
the old one's workers have in flight is delivered first, then their processes end, and the new one delivers. So every
index is delivered once, in the sampler's order. What changes: workers of a new iterator have seeds of their own, as at
the beginning of a pass, so that random augmentation in them draws other numbers from the same distributions. Random
numbers of the training process are not drawn.
"""

import itertools
import weakref
from collections import deque
from typing import Any

import torch
from torch.utils.data.dataloader import DataLoader, _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter

SEED_STEP = 0x9E3779B97F4A7C15  # of one iterator's seeds to the next one's: far apart, whatever the number of workers
_ITERABLE = 1  # torch's _DatasetKind


def why_not(iterator):
    """The reason why this iterator cannot hand over in the middle of a pass; None: it can."""
    if type(iterator) not in (_SingleProcessDataLoaderIter, _MultiProcessingDataLoaderIter):
        return "batches come from %s, not from an iterator of torch's DataLoader" % type(iterator).__name__
    if iterator._dataset_kind == _ITERABLE:
        return "the place of each worker in an iterable data set cannot be handed over"
    if any(kind.__name__ == "MapDataPipe" for kind in type(iterator._dataset).__mro__):
        return "data pipes are divided among workers when a pass begins"
    return None


class _Rest:
    """The sampler of a new iterator: the indices that are left of the pass, and the length of all."""

    def __init__(self, sampler, rest):
        self._sampler, self._rest = sampler, rest
        self.drawn: Any = []  # until the new iterator is complete: it may fail, and they would be lost
        self.settled = False

    def __iter__(self):
        return self

    def __next__(self):
        index = next(self._rest)
        if not self.settled:
            self.drawn.append(index)
        return index

    # untested: part of the interface of a sampler
    def __len__(self):
        return len(self._sampler)


class Relay:
    """Delivers the batches of one pass, from one iterator after the other.

    Attributes:
        delivered: batches that the latest iterator has delivered.

    Args:
        iterator: the one that the training holds; its ``_next_data`` is this relay's from now on.
    """

    def __init__(self, iterator):
        self._held = weakref.ref(iterator)  # which holds this relay
        self._later: Any = deque()  # iterators after it; the last one has the rest of the indices
        self._own = True  # the training's own iterator still delivers
        self._made = 0
        self.delivered = 0
        iterator.__dict__["_next_data"] = self.next_data

    @property
    def source(self):
        """The latest iterator."""
        return self._later[-1] if self._later else self._held()

    @property
    def draining(self):
        """True while batches of earlier iterators are delivered."""
        return len(self._later) > (0 if self._own else 1)

    def switch(self, loader):
        """Go on with an iterator that has the present settings of ``loader``.

        Args:
            loader: the DataLoader; only its attributes are read.

        Raises:
            Exception: whatever making the iterator raises; the present one then goes on.
        """
        old = self.source
        rest = _Rest(old._index_sampler, old._sampler_iter)
        try:
            new = _iterator(loader, rest, self._seed(old))
        except BaseException:
            old._sampler_iter = itertools.chain(rest.drawn, old._sampler_iter)
            raise
        rest.settled, rest.drawn = True, []
        old._sampler_iter = iter(())
        new._index_sampler = old._index_sampler  # for a later pass, which workers that stay may serve
        self._later.append(new)
        self.delivered = 0
        return new

    def next_data(self):
        """Stands in for ``_next_data`` of the training's iterator."""
        while self.draining:
            first: Any = self._held() if self._own else self._later[0]
            try:
                return type(first)._next_data(first)
            except StopIteration:
                if self._own:
                    self._own = False
                else:
                    self._later.popleft()
                end(first)
        source: Any = self.source
        data = type(source)._next_data(source)
        self.delivered += 1
        return data

    def _seed(self, old):
        self._made += 1
        return (old._base_seed + self._made * SEED_STEP) % (1 << 63)


def _iterator(loader, rest, seed):
    """An iterator with the settings of ``loader`` over the rest of a pass."""
    clone: Any = object.__new__(DataLoader)  # of a subclass too, whose own ways do not matter any more
    clone.__dict__.update(loader.__dict__)
    generator = torch.Generator()
    generator.manual_seed(seed)
    clone.__dict__.update(generator=generator, _iterator=None)
    clone.__dict__["sampler" if clone.batch_sampler is None else "batch_sampler"] = rest
    return _MultiProcessingDataLoaderIter(clone) if clone.num_workers else _SingleProcessDataLoaderIter(clone)


def end(iterator):
    """End the workers of an iterator, if it has any."""
    shutdown = getattr(iterator, "_shutdown_workers", None)
    if shutdown is not None:
        shutdown()


def ready(iterator):
    """Finished batches that wait in an iterator's queue; 0 where there is no queue, or its length is not known."""
    try:
        early = sum(len(info) == 2 for info in list(iterator._task_info.values()))
        return early + iterator._data_queue.qsize()
    except (AttributeError, NotImplementedError, OSError):
        return 0


def queue_of(iterator):
    """Workers of an iterator, and the batches that they have in flight together; 0 and 1 without workers."""
    workers = iterator._num_workers
    return workers, max(workers * getattr(iterator, "_prefetch_factor", 1), 1)
