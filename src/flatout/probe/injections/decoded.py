"""Samples that are decoded once: what a file decodes to is kept in memory that all workers share.

Only the decoder is left out: all that comes after the decoding runs each time. So random transforms stay random, and
the samples are the same, bit for bit. Where MONAI says which transforms are random, those before them are left out too.
"""

import contextlib
import hashlib
import io
import os
import threading

from ..sample_memory import KEY_BYTES, SampleMemory
from . import decoded_arrays, decoded_pictures, prepared_items, resized_pictures


def install(injected, watch):
    """Make or join the shared memory, and patch decoders once they are imported."""
    room = wanted_room(injected)
    try:
        kept = Kept(SampleMemory(int(room)), injected)
    except (OSError, ValueError, AttributeError) as error:  # no memfd_create before Linux 3.17
        injected.refuse("sample_cache_bytes", "%s bytes cannot be shared: %s" % (room, error))
        return
    decoded_pictures.patch(kept, resized_pictures.patch(kept, watch), watch)
    decoded_arrays.patch(kept, watch)
    prepared_items.patch(kept, injected, watch)


def wanted_room(injected):
    """Bytes that samples may take; None: it is not said."""
    return injected.get("sample_cache_bytes")


class Kept:
    """Samples by what they are made from, with the check of the first ones."""

    def __init__(self, memory, injected, setting="sample_cache_bytes"):
        self._memory, self._injected, self._setting = memory, injected, setting
        self._held = threading.local()  # .back: nothing is stored in this thread

    def find(self, key):
        """The stored bytes, to be relied on if ``checked``; None: there are none."""
        if getattr(self._held, "back", False):
            return None
        try:
            return self._memory.find(key)
        except OSError:  # the program closed the descriptor
            return None

    @property
    def checked(self):
        return not self._memory.unchecked()

    def compare(self, stored, made, otherwise="a file decoded to other values than before"):
        """Compare a stored sample with the one that was computed now; ``otherwise`` is said if they differ."""
        if bytes(stored) == bytes(made):
            self._memory.compared(True)
            self.used()
        else:
            self.give_up(otherwise)

    def give_up(self, why):
        """Rely on nothing that is stored, in any process."""
        self._memory.compared(False)
        self._injected.refuse(self._setting, why)

    @contextlib.contextmanager
    def nothing_else(self):
        """Inside, nothing is looked for or stored in this thread: what is made of it is stored as a whole."""
        self._held.back = True
        try:
            yield
        finally:
            self._held.back = False

    def used(self):
        """Note that samples are stored and used, also where another process stored them all."""
        self._injected.done("sample_cache_bytes", self._setting)

    def keep(self, key, made):
        """Store a sample, if there is room."""
        if self.note(key, made):
            self.used()

    def note(self, key, made):
        """Store what is no sample; returns whether it was stored."""
        if getattr(self._held, "back", False):
            return False
        try:
            return self._memory.keep(key, made)
        except OSError:
            return False

    @staticmethod
    def key(source, form):
        """The key of what a source, told by ``source_of``, decodes to in a form that ``repr`` tells."""
        return hashlib.blake2b(source + repr(form).encode(), digest_size=KEY_BYTES).digest()

    @staticmethod
    def source_of(file):
        """What tells the content of a path, descriptor, open file or buffer from all others, as bytes.

        None: it is something else, or not at its beginning.
        """
        try:
            if isinstance(file, io.BytesIO):
                return Kept.source_of(file.getbuffer()) if file.tell() == 0 else None
            if isinstance(file, memoryview):
                return hashlib.blake2b(file, digest_size=KEY_BYTES).digest()
            if isinstance(file, (str, bytes, int, os.PathLike)):
                found = os.stat(file)
            elif isinstance(file, io.BufferedReader) and file.tell() == 0:
                found = os.fstat(file.fileno())
            else:
                return None
        except (OSError, ValueError):
            return None
        return b"%d %d %d %d %d" % (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
