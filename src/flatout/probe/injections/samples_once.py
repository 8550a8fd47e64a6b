"""Whole samples of a data set that gives the same each time are kept in memory that all workers share.

A sample is kept as the bytes of what ``default_collate`` makes of it, under a digest of the data set, of the code that
it runs and of what that reads, and of its index; with the state of the files that were read for it. The first ones that
come again are made again, and compared, and from then on one in so many. What draws random numbers is never kept.
"""

import hashlib
import os
import sys
from typing import Any

import torch
from torch.utils.data import Subset, default_collate

from .. import memory_room
from ..hooks import native_opens
from ..sample_memory import CHECKED, KEY_BYTES, SampleMemory
from .call_keys import CallKeys
from .collated import Batch, Unlike, filled, innermost, same_bits, take_the_place, tensors
from .decoded import Kept, wanted_room
from .read_files import ReadFiles
from .side_effects import Draws

_SETTING = "samples_once"
_MEMORY_SHARE = 0.25  # of what is available, where no room is given
_AGAIN = 64  # of later samples, each so many is made again


def install(injected, watch):
    """Patch the fetch of data sets with indices."""
    if "numpy" not in sys.modules:
        injected.refuse(_SETTING, "NumPy is not installed")
        return
    room = wanted_room(injected) or int(_MEMORY_SHARE * memory_room.available_bytes())
    try:
        kept = Kept(SampleMemory(int(room)), injected, _SETTING)
    except (OSError, ValueError, AttributeError) as error:  # no memfd_create before Linux 3.17
        injected.refuse(_SETTING, "%s bytes cannot be shared: %s" % (room, error))
        return
    files = ReadFiles()
    native_opens.watch_for(watch)
    storing: Any = set()
    take_the_place(injected, _SETTING, lambda data_set: Once(injected, data_set, kept, files, storing))


class Once:
    """In place of a data set, for the fetches of one pass in one process.

    Args:
        injected: the settings of this process.
        data_set: the real one.
        kept: the memory.
        files: looks at those that are read.
        storing: keys of the data sets of this process whose samples are stored.
    """

    def __init__(self, injected, data_set, kept, files, storing):
        self._injected, self._data_set, self._kept, self._files = injected, data_set, kept, files
        self._storing = storing
        self._like: Any = None  # a sample, collated
        self._agreed, self._hits, self._off = 0, os.getpid(), False
        self._fits = False  # a batch of stored samples was compared with a collated one
        inner = innermost(data_set)
        function = getattr(type(inner), "__getitem__", None)
        keys = CallKeys(function, _SETTING) if hasattr(function, "__code__") else None
        # As it is now: a data set that is changed between two passes has another digest.
        self._key: Any = keys.key((inner, 0), {})[0] if keys is not None else None
        if self._key is None:
            unknown = keys.unknown if keys is not None else ""
            self._leave_alone("what the data set reads is not known" + (": " + unknown if unknown else ""))
        elif (why := kept.find(self._note("left alone"))) is not None:
            self._leave_alone(bytes(why).decode())
        elif kept.find(self._note("agreed")) is not None:
            self._agreed = CHECKED

    def __getitem__(self, index):
        return self._data_set[index]

    def __getitems__(self, indices):
        """The samples, or the batch that is made of stored ones."""
        if self._off:
            return [self._data_set[index] for index in indices]
        samples: Any = {}  # place -> a sample that was made just now
        rows = [self._row(place, index, samples) for place, index in enumerate(indices)]
        if not self._off and len(samples) < len(rows) and None not in rows:
            return Batch(self._joined(rows))
        found = [samples[place] if place in samples else self._data_set[index] for place, index in enumerate(indices)]
        if not self._off and not self._fits and None not in rows:
            self._compare_batch(rows, found)
        return found

    def _row(self, place, index, samples):
        """The bytes of a sample; None: it is not kept. One that is made goes into ``samples``."""
        if self._off:
            return None
        key = self._note(_real(self._data_set, index))
        stored = self._kept.find(key)
        if stored is not None and self._like is not None and self._fits and self._agreed >= CHECKED:
            self._hits += 1
            if self._hits % _AGAIN and self._files.unchanged(stored):
                return self._files.without(stored)
        draws = Draws()
        with self._files.watched() as files:
            samples[place] = self._data_set[index]
        drew = draws.finish() or draws.count
        try:
            if drew:
                raise Unlike("samples of the data set are drawn at random")
            row = self._bytes(samples[place])
            made = files.before(row)
            if made is None:
                raise Unlike("a sample is made of many files")
        except Exception as error:
            self._leave_alone(str(error) if type(error) is Unlike else "%s: %s" % (type(error).__name__, error))
            return None
        if stored is None:
            self._kept.keep(key, made)
            self._storing.add(self._key)
        elif not self._files.unchanged(stored):
            pass  # its files were written anew: what was stored stays, and is never used again
        elif self._files.same(stored, made):
            self._agreed += 1
            if self._agreed == CHECKED:
                self._kept.note(self._note("agreed"), b"1")
            self._kept.used()
        else:
            self._leave_alone("the data set gave another sample than before", stale=True)
            return None
        return row

    def _bytes(self, sample):
        """Those of a sample, collated."""
        single = default_collate([sample])
        parts = tensors(single)
        if self._like is None:
            self._like = single
        known = tensors(self._like)
        if len(parts) != len(known) or any(
            one.dtype != other.dtype or one.shape != other.shape for one, other in zip(parts, known)
        ):
            raise Unlike("samples have several forms")
        if not all(one.numel() and one.is_contiguous() for one in parts):
            raise Unlike("samples have no bytes of their own")
        return b"".join(one.view(torch.uint8).numpy().tobytes() for one in parts)

    def _joined(self, rows):
        """The batch of these samples."""
        numpy: Any = sys.modules["numpy"]  # torch has imported it
        values, start = [], 0
        for like in tensors(self._like):
            size = like.numel() * like.element_size()
            data = numpy.empty((len(rows), size), numpy.uint8)
            for place, row in enumerate(rows):
                data[place] = numpy.frombuffer(row, numpy.uint8, size, start)
            start += size
            values.append(torch.from_numpy(data.reshape(-1)).view(like.dtype).reshape(len(rows), *like.shape[1:]))
        return filled(self._like, iter(values))

    def _compare_batch(self, rows, samples):
        """Compare a batch of bytes with what ``default_collate`` makes of the samples."""
        joined, expected = tensors(self._joined(rows)), tensors(default_collate(samples))
        self._fits = all(map(same_bits, joined, expected))
        if not self._fits:
            self._leave_alone("a batch of its samples is laid out in another way")

    def _note(self, what):
        return hashlib.blake2b(repr(what).encode(), key=self._key, digest_size=KEY_BYTES).digest()

    def _leave_alone(self, why, stale=False):
        self._off = True
        if self._key is not None:
            self._kept.note(self._note("left alone"), why.encode())
        self._storing.discard(self._key)
        if stale or not self._storing:  # not only those of a validation
            self._injected.applied.pop(_SETTING, None)
            self._injected.refuse(_SETTING, why)


def _real(data_set, index):
    """The index in the innermost data set."""
    index = int(index)
    while type(data_set) is Subset:
        index = int(data_set.indices[index])
        data_set = data_set.dataset
    return index
