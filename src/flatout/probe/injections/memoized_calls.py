"""Functions that make samples answer the same call from memory that all workers share.

A function is asked again for the first calls whose result is stored, and now and then later, and what it returns is
compared: one that draws random numbers or returns something else is left alone from then on, and what it calls may
still be memoized. A result is stored as it was returned, and each call gets a copy of its own.
"""

import os
import threading
from typing import Any

from .. import in_place, memory_room
from ..hooks import native_opens
from ..packed_results import pack, unpack
from ..recorder import report_fault
from ..sample_memory import SampleMemory
from .beginnings import at_beginnings
from .call_keys import CallKeys
from .decoded import Kept, wanted_room
from .named_functions import NamedFunction, find
from .read_files import ReadFiles
from .side_effects import Draws

_CHECKED = 32  # calls of each object's method that are computed as well
_AGAIN = 64  # of later calls, each so many is computed as well
_MEMORY_SHARE = 0.25  # of what is available, where no room is given
_LOOKED_UP = 3  # times, until all functions are found


def install(injected, watch):
    """Look the functions up when a pass begins, before workers are forked; in others, when a fetcher is made."""
    room = wanted_room(injected) or int(_MEMORY_SHARE * memory_room.available_bytes())
    try:
        kept = Kept(SampleMemory(int(room)), injected, "memoize")
    except (OSError, ValueError, AttributeError) as error:  # no memfd_create before Linux 3.17
        injected.refuse("memoize", "%s bytes cannot be shared: %s" % (room, error))
        return
    memoized = _MemoizedCalls(injected, kept)
    native_opens.watch_for(watch)

    def at_backward():
        memoized.nested = not memoized.looked_up
        memoized.look_up()

    at_beginnings(memoized.look_up, watch, at_backward)


class _MemoizedCalls:
    """The functions of the setting."""

    def __init__(self, injected, kept):
        self._injected, self.kept = injected, kept
        self._pending = [NamedFunction(text) for text in injected.get("memoize").split(",")]
        self._named = len(self._pending)
        self._innermost = self._pending[-1]
        self._refused = {}
        self._memoized: Any = []
        injected.at_end.append(self._left_alone)
        self.looked_up = 0
        # Calls inside others are memoized too: without a data set, it is not known which of them repeat.
        self.nested = False
        self.files = ReadFiles()
        self.running = threading.local()  # .depth: calls that are computed to be stored, which hold what they call

    def look_up(self):
        """Find functions that are not found yet."""
        if not self._pending or self.looked_up == _LOOKED_UP:
            return
        self.looked_up += 1
        try:
            for named, function in list(find(self._pending)):
                self._memoize(named, function)
        except Exception:
            report_fault("memoize")
        for named in list(self._pending) if self.looked_up == _LOOKED_UP or self.nested else ():
            self._pending.remove(named)
            when = "as a backward pass came" if self.nested else "as passes over a loader began"
            self.refuse(named, "%s, %s" % (named.missing, when))

    def _memoize(self, named, function):
        if in_place.is_instrumented(function):
            return
        memoized = _Memoized(self, named, function)
        if memoized.keys.digest is None:
            self.refuse(named, "it closes over what has no digest")
            self._pending = [one for one in self._pending if one is not named]
            return
        try:
            in_place.instrument(function, memoized)
        except in_place.NotInstrumented as error:
            self.refuse(named, str(error))
        self._memoized.append(memoized)
        if named in self._pending:
            self._pending.remove(named)

    def _left_alone(self):
        """What to say at the end of functions that were left alone, in whatever process, if others were not."""
        if self._injected.refused.get("memoize"):
            return []  # which says it of all
        found = dict(self._refused)
        for memoized in self._memoized:
            why = self.kept.find(memoized.alone)
            if why is not None:
                found[memoized.text] = bytes(why).decode()
        return ["memoize leaves %s alone: %s" % item for item in found.items()]

    def repeats(self, named, stored, hits):
        """False for calls around others that are stored and never asked for again."""
        return hits or stored < _CHECKED or not self.nested or named is self._innermost

    def refuse(self, named, why):
        """Note that a function is left alone; the setting is refused once all are."""
        self._refused[named.text] = why
        if len(self._refused) == self._named:
            self._injected.refuse("memoize", "; ".join("%s: %s" % item for item in self._refused.items()))


class _Memoized:
    """Answers the calls of one function.

    Attributes:
        keys: of its calls.
        text: the function, as the setting names it.
        alone: key of the reason why it is left alone, in the memory of all processes.
    """

    def __init__(self, calls, named, function):
        self._calls, self._named, self._function = calls, named, function
        self.keys = CallKeys(function, named.text)
        self._agreed = {}  # digest of the object whose method it is -> calls that agreed
        self._hits = self._stored = 0
        self.text, self.alone = named.text, self.keys.note("left alone")

    def __call__(self, *args, **kwargs):
        """The result in a tuple; None: the body has to run."""
        running = self._calls.running
        if getattr(running, "depth", 0) and not self._calls.nested:
            return None
        key, whose = self.keys.key(args, kwargs)
        if key is None:
            if self.keys.unknown:
                self._leave_alone("what it reads is not known: %s" % self.keys.unknown)
            return None
        kept = self._calls.kept
        stored = kept.find(key)
        if stored is not None:
            if not self._calls.files.unchanged(stored):
                return None
            self._hits += 1
            # Workers that live for one pass each do not begin to count at the same place.
            if (self._hits + os.getpid()) % _AGAIN and self._agrees(whose):
                kept.used()
                return (unpack(self._calls.files.without(stored)),)
        elif kept.find(self.alone) is not None:
            self._leave_alone(bytes(kept.find(self.alone)).decode())
            return None
        draws = Draws()
        running.depth = getattr(running, "depth", 0) + 1
        try:
            with self._calls.files.watched() as files:
                result = self._function(*args, **kwargs)
        finally:
            running.depth -= 1
        packed = pack(result)
        made = None if packed is None else files.before(packed)
        if draws.finish() or draws.count:
            self._leave_alone("it draws random numbers")
        elif made is None:
            self._leave_alone("it returns what cannot be kept, %s" % type(result).__name__)
        elif stored is None:
            kept.keep(key, made)
            self._stored += 1
            if not self._calls.repeats(self._named, self._stored, self._hits):
                self._leave_alone("its calls do not repeat")
        elif self._calls.files.same(stored, made):
            self._agree(whose)
            kept.used()
        else:
            old = "; one call of %d was compared, and results since the last one may have been old ones: " % _AGAIN
            old += "then this training differs from one without the setting"
            relied = kept.find(self.keys.note("agreed", whose)) is not None
            self._leave_alone("it returned something else than before" + old * relied)
        return (result,)

    def _agrees(self, whose):
        """True if enough calls were computed and compared, in this process or another one."""
        if whose not in self._agreed:
            kept = self._calls.kept
            known = kept.find(self.keys.note("agreed", whose)) is not None and kept.find(self.alone) is None
            self._agreed[whose] = _CHECKED if known else 0
        return self._agreed[whose] >= _CHECKED

    def _agree(self, whose):
        self._agreed[whose] = self._agreed.get(whose, 0) + 1
        if self._agreed[whose] == _CHECKED:
            self._calls.kept.keep(self.keys.note("agreed", whose), b"1")

    def _leave_alone(self, why):
        self._calls.kept.keep(self.alone, why.encode())
        in_place.restore(self._function)
        self._calls.refuse(self._named, why)
