"""Append fixed-width events to a memory-mapped file that survives ``kill -9``."""

import itertools
import json
import mmap
import os
import struct
import sys
import threading
import time
from typing import Any

from .events import EVENT, FORMAT_VERSION, HEADER, HEADER_BYTES, LIVE, LIVE_OFFSET, MAGIC

PACKED_AT_ONCE = 64
WAITING_AT_MOST = 4096  # values, of seven an event
COUNTER = struct.Struct("<q")
LOST_OFFSET = LIVE_OFFSET + 6 * COUNTER.size  # its index among the live counters
FLAGS_OFFSET = LIVE_OFFSET + 7 * COUNTER.size
CHUNK_BYTES = 1 << 20
MAX_BYTES = 1 << 30  # 26 million events: a day of 3 ms steps; the mapping costs address space, not memory


class EventFile:
    """One process's events.

    Disk space is reserved a chunk at a time before the mapping touches it: writing to a mapped page
    that the disk cannot hold would end the training with SIGBUS. No descriptor is kept: if a script closed
    all descriptors and reused the numbers, its own files would be overwritten.

    ``emit`` only queues an event, which costs the step little; ``flush`` packs the queued events in one go. It is
    called whenever progress is published, by the stack sampler some 20 times a second, and after each batch that a
    worker hands over: a killed process loses only later events.
    """

    def __init__(self, path, first_chunk=CHUNK_BYTES):
        self.path = path
        self.lost = 0
        self._grow_lock = threading.Lock()
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            os.posix_fallocate(fd, 0, HEADER_BYTES + first_chunk)
            self._map = _map_largest(fd, HEADER_BYTES + first_chunk)
        except OSError:
            os.unlink(path)
            raise
        finally:
            os.close(fd)
        self._reserved = HEADER_BYTES + first_chunk
        HEADER.pack_into(
            self._map, 0, MAGIC, FORMAT_VERSION, EVENT.size, os.getpid(), time.monotonic_ns(), time.time_ns()
        )
        self._waiting = []  # the values of events that are not packed yet, one flat list
        self._end = HEADER_BYTES
        self._flush_lock = threading.Lock()
        self.emit = self._make_emit()

    def _make_emit(self):
        waiting = self._waiting
        note = waiting.extend  # atomic for a tuple: any thread may emit
        get_ident, flush = threading.get_ident, self.flush
        slots = {threading.main_thread().ident: 0}

        def emit(kind, start, end, arg=0, a=0, b=0, thread=None):
            ident = thread or get_ident()
            slot = slots.get(ident)
            if slot is None:
                slot = slots.setdefault(ident, len(slots))
            note((kind, slot, arg, start, end - start, a, b))
            if len(waiting) > WAITING_AT_MOST:
                flush()

        return emit

    def flush(self):
        """Pack the events queued so far into the file; returns immediately while another thread does."""
        if not self._flush_lock.acquire(False):
            return
        try:
            waiting = self._waiting
            values = waiting[:]
            del waiting[: len(values)]
            for first in range(0, len(values), 7 * PACKED_AT_ONCE):
                self._pack(values[first : first + 7 * PACKED_AT_ONCE])
        finally:
            self._flush_lock.release()

    def _pack(self, values):
        count = len(values) // 7
        needed = self._end + count * EVENT.size
        if needed > self._reserved and not self._reserve(needed):
            room = (self._reserved - self._end) // EVENT.size
            self.lost += count - room
            # Immediately: workers never publish, and nothing does after the last step.
            COUNTER.pack_into(self._map, LOST_OFFSET, self.lost)
            count = room
        _many(count).pack_into(self._map, self._end, *values[: 7 * count])
        self._end += count * EVENT.size

    def _reserve(self, needed):
        with self._grow_lock:
            while self._reserved < needed:
                if self.lost or self._reserved + CHUNK_BYTES > len(self._map):
                    return False
                try:
                    fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
                    try:
                        os.posix_fallocate(fd, self._reserved, CHUNK_BYTES)
                    finally:
                        os.close(fd)
                except OSError:  # disk full: the training continues, the record counts the lost events
                    return False
                self._reserved += CHUNK_BYTES
        return True

    def live(self, *counters):
        """Rewrite the eight live counters in the header."""
        LIVE.pack_into(self._map, LIVE_OFFSET, *counters)

    def flags(self, flags):
        """Rewrite the last of the live counters."""
        COUNTER.pack_into(self._map, FLAGS_OFFSET, flags)

    def abandon(self):
        """In a forked child: stop sharing the parent's file, without touching it."""
        self.emit = lambda *args, **kwargs: None
        self._waiting.clear()  # the parent writes them; nothing is queued here any more


_structs: Any = {}


def _many(count):
    """The struct of ``count`` consecutive events."""
    layout = _structs.get(count)
    if layout is None:
        layout = _structs[count] = struct.Struct("<" + EVENT.format.lstrip("<") * count)
    return layout


def _map_largest(fd, least):
    """Map as much as the limits on file size and address space allow."""
    # Before Python 3.13 a mapping keeps a descriptor, which nothing here ever reads.
    options = {"trackfd": False} if sys.version_info >= (3, 13) else {}
    for size in (MAX_BYTES, MAX_BYTES >> 4, MAX_BYTES >> 6, least):
        try:
            os.ftruncate(fd, size)
            return mmap.mmap(fd, size, **options)
        except (OSError, ValueError):
            if size == least:
                raise


class NamesFile:
    """JSON lines with the meanings of the ids in events; every line is on disk once written."""

    def __init__(self, path):
        self._path = path
        self._next_id = itertools.count(1).__next__
        self._texts = {}

    def add(self, type_, **fields):
        """Write a new entry and return its id."""
        number = self._next_id()
        self.write(number, type_, fields)
        return number

    def write(self, number, type_, fields):
        """Write an entry, or add fields to an earlier one of the same id."""
        line = json.dumps({"id": number, "type": type_, **fields}, default=_plain) + "\n"
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                os.write(fd, line.encode("utf-8", "replace"))
            finally:
                os.close(fd)
        except OSError:
            pass

    def text(self, text):
        """Id of a short text, written once."""
        number = self._texts.get(text)
        if number is None:
            number = self._texts[text] = self.add("text", text=text)
        return number

    def has_text(self, text):
        """True if ``text`` was written."""
        return text in self._texts


def _plain(value):
    """A number of NumPy's as one of Python's; anything else as text."""
    dtype = getattr(value, "dtype", None)
    convert = {"b": bool, "i": int, "u": int, "f": float}.get(getattr(dtype, "kind", ""), str)
    for attempt in (convert, str):
        try:
            return attempt(value)
        except Exception:  # of a class of the user's, or an array
            continue
    return type(value).__name__


def write_json(path, content):
    """Write a small JSON file so that a reader never sees half of it."""
    temporary = "%s.%d.tmp" % (path, os.getpid())
    text = json.dumps(content, default=_plain)  # in one go: another thread may add a field
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError:
        try:
            os.unlink(temporary)
        except OSError:
            pass
