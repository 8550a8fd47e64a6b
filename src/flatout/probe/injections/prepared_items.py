"""What MONAI's transforms before the first random one make of an item, made once: later passes get copies of it.

Which transforms those are is MONAI's own rule, the one of its CacheDataset. An item is prepared again for the first
calls whose result is stored, and now and then later, and compared. Files that it was made of are looked at each time.
"""

import functools
import hashlib
import inspect
import os

from ..hooks import native_opens
from ..hooks.transforms import monai_classes
from ..recorder import report_fault
from ..sample_memory import KEY_BYTES
from .call_keys import add_value
from .object_state import Seen
from .packed_items import alike, pack, unpack
from .read_files import ReadFiles
from .side_effects import Draws

_CHECKED = 8  # items that are prepared as well, and compared, before stored ones are relied on
_AGAIN = 64  # of later ones, each so many is prepared as well
_DEEPEST = 8  # objects and lists in one another
_OF_LAST_CALL = ("filenames",)  # that readers note
_MOST_DATA_SETS = 16  # whose transforms are remembered


def patch(kept, injected, watch):
    """Patch MONAI's data set of items once it is imported."""
    native_opens.watch_for(watch)
    watch("monai.data.dataset", functools.partial(_patch, kept, injected))


def _patch(kept, injected, module):
    plain = module.Dataset._transform
    calls = inspect.signature(module.Compose.__call__).parameters
    if not {"start", "end"} <= calls.keys():  # untested: MONAI before 1.3
        return
    prepared = _PreparedItems(kept, injected, module)

    @functools.wraps(plain)
    def _transform(self, index):
        first = prepared.first_random(self) if type(self)._transform is _transform else 0
        if not first:
            return plain(self, index)
        made = prepared.item(self, first, self.data[index])
        return self.transform(made, start=first) if first < len(self.transform.transforms) else made

    module.Dataset._transform = _transform


class _PreparedItems:
    """The items of all data sets of a process, and what is stored of them."""

    def __init__(self, kept, injected, module):
        self._kept, self._compose = kept, module.Compose
        self._transform, self._random = monai_classes()
        self._files, self._seen = ReadFiles(), {}
        self._hits = self._agreed = 0
        injected.at_end.append(self._left_alone)

    def first_random(self, data_set):
        """How many transforms come before the first one that MONAI calls random; 0: none is to be left out."""
        compose = data_set.transform
        # A lazy pipeline joins what both halves do to the grid.
        if type(compose) is not self._compose or getattr(compose, "lazy", False) is not False:
            return 0
        if self._kept.find(self._note("left alone")) is not None:
            return 0
        for place, one in enumerate(compose.transforms):
            if isinstance(one, self._random) or not isinstance(one, self._transform):
                return place
        return len(compose.transforms)

    def item(self, data_set, first, given):
        """What the first transforms of a data set make of an item."""
        transforms = data_set.transform.transforms[:first]
        key = self._key(transforms, given)
        stored = None if key is None else self._kept.find(key)
        if stored is not None and not self._files.unchanged(stored):
            key = stored = None
        if stored is not None:
            self._hits += 1
            # Workers that live for one pass each do not begin to count at the same place.
            if (self._hits + os.getpid()) % _AGAIN and self._relied_on():
                self._kept.used()
                return unpack(self._files.without(stored), transforms)
        if key is None:
            return data_set.transform(given, end=first)
        draws = Draws()
        with self._kept.nothing_else(), self._files.watched() as files:
            made = data_set.transform(given, end=first)
        if draws.finish() or draws.count:
            self._leave_alone("it draws random numbers")
        elif stored is None:
            self._store(key, files, pack(made, transforms))
        elif alike(unpack(self._files.without(stored), transforms), made):
            self._agree()
        else:
            self._leave_alone("they made something else of an item than before")
        return made

    def _store(self, key, files, packed):
        packed = None if packed is None else files.before(packed)
        if packed is None:
            self._leave_alone("they make what cannot be kept")
        else:
            self._kept.keep(key, packed)

    def _key(self, transforms, given):
        """The key of an item; None: there is none for it or these transforms."""
        seen = self._seen.setdefault(id(transforms[0]), Seen())
        if len(self._seen) > _MOST_DATA_SETS:
            self._seen.clear()
        found = hashlib.blake2b(digest_size=KEY_BYTES)
        try:
            for place, one in enumerate(transforms):
                _add_object(found, seen, (place,), one)
            _add_item(found, given)
        except Exception:  # no digest
            self._leave_alone("what they are, or what they are given, has no digest")
            return None
        return found.digest()

    def _relied_on(self):
        """True if enough items were compared, in this process or another one."""
        if self._agreed < _CHECKED and self._kept.find(self._note("agreed")) is not None:
            self._agreed = _CHECKED
        return self._agreed >= _CHECKED

    def _agree(self):
        self._agreed += 1
        if self._agreed == _CHECKED:
            self._kept.keep(self._note("agreed"), b"1")
        self._kept.used()

    def _leave_alone(self, why):
        self._kept.keep(self._note("left alone"), why.encode())

    @staticmethod
    def _note(what):
        return hashlib.blake2b(what.encode(), key=b"MONAI", digest_size=KEY_BYTES).digest()

    def _left_alone(self):
        try:
            why = self._kept.find(self._note("left alone"))
        except Exception:
            report_fault("prepared items")
            return []
        return [] if why is None else ["sample_cache_bytes keeps no items of MONAI: %s" % bytes(why).decode()]


def _add_object(found, seen, place, one):
    """Add what a transform holds to a digest: how MONAI has its objects pickled leaves functions out."""
    found.update(type(one).__qualname__.encode())
    for name, part in sorted(vars(one).items()):
        if name not in _OF_LAST_CALL:
            found.update(("%s;" % name).encode())
            _add_part(found, seen, (*place, name), part)


def _add_part(found, seen, place, part):
    if type(part) in (list, tuple) and len(place) < _DEEPEST:
        found.update(b"%d;" % len(part))
        for number, each in enumerate(part):
            _add_part(found, seen, (*place, number), each)
    elif type(part).__module__.startswith("monai.") and hasattr(part, "__dict__") and len(place) < _DEEPEST:
        _add_object(found, seen, place, part)
    else:
        found.update(seen.digest(place, part))


def _add_item(found, given):
    """Add an item to a digest: mostly a dictionary of paths."""
    if type(given) is dict:
        for name, value in given.items():
            add_value(found, name)
            _add_item(found, value)
    else:
        add_value(found, given)
