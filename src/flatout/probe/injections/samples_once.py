"""Whole samples of a data set that gives the same each time are kept in memory that all workers share.

A sample is kept as the bytes of what ``default_collate`` makes of it, under a digest of the data set, of the code that
it runs and of what that reads, and of its index; with the state of the files that were read for it. Before each batch
the data set is looked at again; all of its arrays as a pass begins, and within a pass now and then. The first samples
that come again are made again, and compared, and from then on one in so many. What draws random numbers is never kept.
"""

import hashlib
import os
import sys
from typing import Any

import torch
from torch.utils.data import Subset, default_collate

from .. import memory_room
from ..hooks import native_opens
from ..recorder import now
from ..sample_memory import CHECKED, KEY_BYTES, SampleMemory
from .array_sums import digest_of_arrays
from .call_keys import CallKeys
from .collated import Batch, Unlike, filled, innermost, same_bits, take_the_place, tensors
from .decoded import Kept, wanted_room
from .read_files import ReadFiles
from .side_effects import Draws

_SETTING = "samples_once"
_MEMORY_SHARE = 0.25  # of what is available, where no room is given
_AGAIN = 64  # of later samples, each so many is made again
_WHY = hashlib.blake2b(b"why a data set is left alone", digest_size=KEY_BYTES).digest()  # key of the first reason
_REST = 100  # times what looking at all arrays took, until they are looked at again within a pass


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
    injected.at_end.append(lambda: _left_alone(injected, kept))
    take_the_place(injected, _SETTING, lambda data_set: Once(injected, data_set, kept, files, storing))


def _left_alone(injected, kept):
    """What to say at the end of a data set that was left alone, in whatever process, if others were not."""
    why = None if injected.refused.get(_SETTING) else kept.find(_WHY)
    return [] if why is None else ["%s leaves a data set alone: %s" % (_SETTING, bytes(why).decode())]


class _Failed(Exception):
    """The data set raised what is the cause of this."""


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
        self._like: Any = None  # a batch
        self._stale = False  # a sample was another one than before
        self._agreed, self._hits, self._off = 0, os.getpid(), False
        self._fits = False  # a batch of stored samples was compared with a collated one
        self._inner: Any = innermost(data_set)
        function = getattr(type(self._inner), "__getitem__", None)
        self._keys: Any = CallKeys(function, _SETTING) if hasattr(function, "__code__") else None
        self._arrays: Any = None  # their digest, and when the next one is due
        self._due_ns = 0
        self._key: Any = None
        self._look()

    def _look(self):
        """Find the key of the data set as it is now: one that was changed has another one."""
        key = self._keys.key((self._inner, 0), {})[0] if self._keys is not None else None
        if key is None:
            unknown = self._keys.unknown if self._keys is not None else ""
            self._leave_alone("what the data set reads is not known" + (": " + unknown if unknown else ""))
            return
        begun_ns = now()
        if begun_ns >= self._due_ns:
            self._arrays = digest_of_arrays(self._keys.held())
            self._due_ns = now() + _REST * (now() - begun_ns)
        if self._arrays is None:
            self._leave_alone("its data set holds too much to be looked at in each pass")
            return
        key = hashlib.blake2b(key + self._arrays, digest_size=KEY_BYTES).digest()
        if key == self._key:
            return
        self._key, self._agreed, self._fits = key, 0, False
        if (why := self._kept.find(self._note("left alone"))) is not None:
            self._leave_alone(bytes(why).decode())
        elif self._kept.find(self._note("agreed")) is not None:
            self._agreed = CHECKED

    def __getitem__(self, index):
        return self._data_set[index]

    def __getitems__(self, indices):
        """The samples, or the batch that they make."""
        if not self._off:
            try:
                self._look()
            except Exception as error:  # of an attribute that runs code of its own
                self._leave_alone("%s: %s" % (type(error).__name__, error))
        samples: Any = {}  # place -> a sample that was made just now
        if not self._off:
            try:
                return Batch(self._batch(indices, samples))
            except _Failed as error:  # what the data set raises is the training's own
                raised: Any = error.__cause__
                raise raised from None
            except Exception as error:
                self._leave_alone(str(error) if type(error) is Unlike else "%s: %s" % (type(error).__name__, error))
        return [samples[place] if place in samples else self._data_set[index] for place, index in enumerate(indices)]

    def _batch(self, indices, samples):
        """A batch of stored samples and of those that are made now, which are stored; they go into ``samples``, too.

        Raises:
            Unlike: the data set is to be left alone.
        """
        try:
            keys = [self._note(_real(self._data_set, index)) for index in indices]
        except Exception as error:  # of a sampler of its own
            raise Unlike("an index is no number: %s" % error) from None
        stored: Any = list(map(self._kept.find, keys))
        asked = [place for place, row in enumerate(stored) if row is None or not self._relies_on(row)]
        if not asked:
            return self._joined(list(map(self._files.without, stored)))
        files, draws = [], Draws()
        for place in asked:
            with self._files.watched() as read:
                try:
                    samples[place] = self._data_set[indices[place]]
                except Exception as error:
                    raise _Failed from error
            files.append(read)
        if draws.finish() or draws.count:
            raise Unlike("samples of the data set are drawn at random")
        collated = default_collate([samples[place] for place in asked])
        rows = self._rows(collated)
        for place, row, read in zip(asked, rows, files):
            self._keep(keys[place], stored[place], row, read)
        if len(asked) == len(indices):
            if not self._fits:
                self._fits = all(map(same_bits, tensors(self._joined(rows)), tensors(collated)))
                if not self._fits:
                    raise Unlike("a batch of its samples is laid out in another way")
            return collated
        made = dict(zip(asked, rows))
        return self._joined(
            [made[place] if place in made else self._files.without(row) for place, row in enumerate(stored)]
        )

    def _relies_on(self, stored):
        """False for a sample that is made again: one of the first, one of so many, or one whose files have changed."""
        if not self._fits or self._agreed < CHECKED:
            return False
        self._hits += 1
        return self._hits % _AGAIN and self._files.unchanged(stored)

    def _keep(self, key, stored, row, read):
        made = read.before(row)
        if made is None:
            raise Unlike("a sample is made of many files")
        if stored is None:
            self._kept.keep(key, made)
            self._storing.add(self._key)
        elif not self._files.unchanged(stored):
            return  # they were written anew: what was stored stays, and is never used again
        elif self._files.same(stored, made):
            self._agreed += 1
            if self._agreed == CHECKED:
                self._kept.note(self._note("agreed"), b"1")
            self._kept.used()
        else:
            old = "; one of %d was compared, and samples since the last one may have been old ones: " % _AGAIN
            old += "then this training differs from one without the setting"
            self._stale = True
            raise Unlike("the data set gave another sample than before" + old * (self._agreed >= CHECKED))

    def _rows(self, collated):
        """The bytes of each sample of a batch."""
        parts = tensors(collated)
        if self._like is None:
            self._like = collated
        known = tensors(self._like)
        if len(parts) != len(known) or any(
            one.dtype != other.dtype or one.shape[1:] != other.shape[1:] for one, other in zip(parts, known)
        ):
            raise Unlike("samples have several forms")
        if not all(one.numel() and one.is_contiguous() and not one.requires_grad for one in parts):
            raise Unlike("samples are empty, or belong to a graph")
        data = [one.reshape(-1).view(torch.uint8).reshape(len(one), -1).numpy() for one in parts]
        return [b"".join(one[place].tobytes() for one in data) for place in range(len(parts[0]))]

    def _joined(self, rows):
        """The batch of these samples."""
        numpy: Any = sys.modules["numpy"]  # torch has imported it
        values, start = [], 0
        for like in tensors(self._like):
            size = like[0].numel() * like.element_size()
            data = numpy.empty((len(rows), size), numpy.uint8)
            for place, row in enumerate(rows):
                data[place] = numpy.frombuffer(row, numpy.uint8, size, start)
            start += size
            values.append(torch.from_numpy(data.reshape(-1)).view(like.dtype).reshape(len(rows), *like.shape[1:]))
        return filled(self._like, iter(values))

    def _note(self, what):
        return hashlib.blake2b(repr(what).encode(), key=self._key, digest_size=KEY_BYTES).digest()

    def _leave_alone(self, why):
        self._off = True
        self._kept.note(_WHY, why.encode())
        if self._key is not None:
            self._kept.note(self._note("left alone"), why.encode())
        self._storing.discard(self._key)
        if self._stale or not self._storing:  # not only those of a validation
            self._injected.applied.pop(_SETTING, None)
            self._injected.refuse(_SETTING, why)


def _real(data_set, index):
    """The index in the innermost data set."""
    index = int(index)
    while type(data_set) is Subset:
        index = int(data_set.indices[index])
        data_set = data_set.dataset
    return index
