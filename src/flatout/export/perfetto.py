"""Perfetto's own format: tracks, nested slices with arguments, flows between processes, counters.

The fields and their numbers are those of protos/perfetto/trace/perfetto_trace.proto of the Perfetto project.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import IO

import numpy as np

from flatout.export.nesting import nested
from flatout.export.protobuf import Bytes, Part, fixed64, message, messages, rendered, text, uint, uints
from flatout.export.timeline import Counter, Flags, Ints, Process, Slices, Timeline, Track

# Of Trace and TracePacket.
_PACKET, _TIMESTAMP, _SEQUENCE, _EVENT, _INTERNED, _FLAGS, _DESCRIPTOR = 1, 8, 10, 11, 12, 13, 60
_CLEARED, _NEEDED = 1, 2  # interned texts: none from before are valid; this packet refers to some
_THE_SEQUENCE = 1
# Of TrackEvent.
_CATEGORY, _ARGUMENT, _TYPE, _NAME, _TRACK, _VALUE, _FLOW, _FLOW_END = 3, 4, 9, 10, 11, 44, 47, 48
_BEGIN, _END, _COUNTER = 1, 2, 4
# Slices and edges that are packed at once: their bytes and places take some 100 MB.
_AT_ONCE = 1 << 18


def write_perfetto(file: IO[bytes], timelines: Sequence[Timeline], base_ns: int) -> None:
    """Write runs as one trace.

    Args:
        file: takes the bytes.
        timelines: of one machine, or of several with clocks that agree.
        base_ns: the wall clock at the trace's time 0.
    """
    interned = _Interned()
    tracks = 0
    file.write(_packet(uint(_FLAGS, _CLEARED)))
    for timeline in timelines:
        file.write(interned.texts(timeline))
        shift = timeline.offset_ns - base_ns
        for order, process in enumerate(timeline.processes):
            parent = tracks = tracks + 1
            file.write(_packet(_process(parent, process, order, timeline.run if len(timelines) > 1 else "")))
            for place, track in enumerate(process.tracks):
                first = tracks + 1
                tracks += _write_track(file, track, process, (parent, first, place), interned, shift)
            for counter in process.counters:
                tracks += 1
                file.write(_packet(_counter_track(tracks, parent, counter)))
                file.write(_samples(counter, tracks, shift).tobytes())


class _Interned:
    """Numbers of texts that stand once in the trace."""

    def __init__(self) -> None:
        self._arguments: dict[str, int] = {}
        self._categories: dict[str, int] = {}
        self.first = 0  # what is added to the numbers of the current timeline's texts
        self._count = 0

    def texts(self, timeline: Timeline) -> bytes:
        """The packet with a timeline's texts, as names of slices and as values of arguments."""
        self.first = self._count
        content = bytearray()
        for id, each in timeline.texts:
            entry = uint(1, self.first + id) + text(2, each)
            content += message(2, entry) + message(29, entry)
            self._count = self.first + id
        return _packet(message(_INTERNED, bytes(content)) + uint(_FLAGS, _NEEDED))

    def arguments_and_category(self, part: Slices) -> bytes:
        """A packet with the names that are new; empty if there are none."""
        content = b""
        for field, known, names in (
            (3, self._arguments, [*part.numbers, *part.words]),
            (1, self._categories, [part.category]),
        ):
            for name in names:
                if name not in known:
                    known[name] = len(known) + 1
                    content += message(field, uint(1, known[name]) + text(2, name))
        return _packet(message(_INTERNED, content) + uint(_FLAGS, _NEEDED)) if content else b""

    def argument(self, name: str) -> bytes:
        return uint(1, self._arguments[name])

    def category(self, name: str) -> bytes:
        return uint(_CATEGORY, self._categories[name])


def _packet(content: bytes) -> bytes:
    return message(_PACKET, content + uint(_SEQUENCE, _THE_SEQUENCE))


def _packets(stamp: Ints, event: Sequence[Part]) -> Bytes:
    """Packets with an event each."""
    head = [*uints(_TIMESTAMP, stamp), uint(_SEQUENCE, _THE_SEQUENCE) + uint(_FLAGS, _NEEDED)]
    return rendered(messages(_PACKET, [*head, *messages(_EVENT, event)]), len(stamp))


def _process(uuid: int, process: Process, order: int, run: str) -> bytes:
    name = f"{run}: {process.name}" if run else process.name
    # A viewer joins processes of equal ids: those of another run are others.
    who = uint(1, process.pid) + text(6, name) if process.pid and not run else b""
    content = uint(1, uuid) + (message(3, who) if who else text(2, name)) + uint(11, 3) + uint(12, order)
    return message(_DESCRIPTOR, content)


def _thread(uuid: int, parent: int, track: Track, process: Process, place: int, *, thread: bool) -> bytes:
    if thread:
        who = uint(1, process.pid) + uint(2, process.pid) + text(5, track.name)
        return message(_DESCRIPTOR, uint(1, uuid) + uint(5, parent) + message(4, who) + uint(12, place))
    return message(_DESCRIPTOR, uint(1, uuid) + uint(5, parent) + text(2, track.name) + uint(12, place))


def _counter_track(uuid: int, parent: int, counter: Counter) -> bytes:
    about = text(6, counter.unit)
    return message(_DESCRIPTOR, uint(1, uuid) + uint(5, parent) + text(2, counter.name) + message(8, about))


def _samples(counter: Counter, uuid: int, shift: int) -> Bytes:
    return _packets(counter.time + shift, [uint(_TYPE, _COUNTER) + uint(_TRACK, uuid), *fixed64(_VALUE, counter.value)])


def _write_track(
    file: IO[bytes], track: Track, process: Process, ids: tuple[int, int, int], interned: _Interned, shift: int
) -> int:
    """Write one thread; returns the number of tracks that it takes."""
    parent, first, place = ids
    parts = [part for slices in track.slices if len(slices) for part in slices.uniform()]
    if not parts:
        return 0
    start, end = (np.concatenate([getattr(part, edge) for part in parts]) for edge in ("start", "end"))
    edges = nested(start, end)
    for row in range(edges.rows):
        thread = track.main and row == 0 and bool(process.pid)
        file.write(_packet(_thread(first + row, parent, track, process, place, thread=thread)))
    for part in parts:
        file.write(interned.arguments_and_category(part))
    part_of = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    at = np.arange(len(start)) - np.repeat(np.cumsum([0, *map(len, parts)])[:-1], list(map(len, parts)))
    uuid = first + edges.row
    for begin in range(0, len(edges.span), _AT_ONCE):
        span, is_end = edges.span[begin : begin + _AT_ONCE], edges.is_end[begin : begin + _AT_ONCE]
        groups: list[tuple[Flags, Bytes]] = []
        for number, part in enumerate(parts):
            mine = part_of[span] == number
            begins = mine & ~is_end
            if begins.any():
                groups.append((begins, _begins(part.take(at[span[begins]]), uuid[span[begins]], interned, shift)))
        if is_end.any():
            groups.append((is_end, _ends(end[span[is_end]] + shift, uuid[span[is_end]])))
        file.write(_in_order(groups).tobytes())
    return edges.rows


def _begins(part: Slices, uuid: Ints, interned: _Interned, shift: int) -> Bytes:
    event: list[Part] = [uint(_TYPE, _BEGIN) + interned.category(part.category), *uints(_TRACK, uuid)]
    event += uints(_NAME, part.name + interned.first)
    for name, column in part.numbers.items():
        event += messages(_ARGUMENT, [interned.argument(name), *uints(4, column)])
    for name, column in part.words.items():
        event += messages(_ARGUMENT, [interned.argument(name), *uints(17, column + interned.first)])
    if len(part.flow):
        event += fixed64(_FLOW_END if part.flow_ends else _FLOW, part.flow)
    return _packets(part.start + shift, event)


def _ends(stamp: Ints, uuid: Ints) -> Bytes:
    return _packets(stamp, [uint(_TYPE, _END), *uints(_TRACK, uuid)])


def _in_order(groups: Iterable[tuple[Flags, Bytes]]) -> Bytes:
    """The messages of all groups one behind the other; a group's flags say at which places its own stand."""
    groups = list(groups)
    length = np.zeros(len(groups[0][0]), np.int64)
    for mine, rows in groups:
        length[mine] = rows.shape[1]
    last = np.cumsum(length)
    found = np.empty(int(last[-1]), np.uint8)
    for mine, rows in groups:
        width = rows.shape[1]
        begin = last[mine] - width
        for byte in range(width):
            found[begin + byte] = rows[:, byte]
    return found
