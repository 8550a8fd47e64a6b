"""What is written, read back by the generated classes of the perfetto package."""

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.export.perfetto import write_perfetto
from flatout.export.timeline import Counter, Process, Slices, Texts, Timeline, Track

trace_pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")


def column(*values: int) -> Any:
    return np.array(values, np.int64)


def timeline(
    *tracks: Track, texts: Texts, counters: tuple[Counter, ...] = (), run: str = "run", pid: int = 7
) -> Timeline:
    return Timeline(run, texts, (Process(7, "train.py", tracks, counters),), offset_ns=1_000)


class Read:
    """A trace: its slices as (track, name, start, end, arguments), and what else is in it."""

    def __init__(self, *timelines: Timeline, base_ns: int = 0) -> None:
        file = io.BytesIO()
        write_perfetto(file, timelines, base_ns)
        trace = trace_pb2.Trace()
        trace.ParseFromString(file.getvalue())
        names: dict[str, dict[int, str]] = {"event": {}, "argument": {}, "word": {}, "category": {}}
        self.tracks: dict[int, Any] = {}
        self.slices: list[tuple[str, str, int, int, dict[str, Any]]] = []
        self.flows: list[tuple[str, int]] = []
        self.counters: list[tuple[str, int, float]] = []
        open_on: dict[int, list[Any]] = {}
        for packet in trace.packet:
            for key, field in (("event", "event_names"), ("argument", "debug_annotation_names")):
                names[key].update({each.iid: each.name for each in getattr(packet.interned_data, field)})
            names["category"].update({each.iid: each.name for each in packet.interned_data.event_categories})
            words = packet.interned_data.debug_annotation_string_values
            names["word"].update({each.iid: each.str.decode() for each in words})
            if packet.HasField("track_descriptor"):
                self.tracks[packet.track_descriptor.uuid] = packet.track_descriptor
            if not packet.HasField("track_event"):
                continue
            event = packet.track_event
            track = self.tracks[event.track_uuid]
            shown = track.thread.thread_name or track.name
            if event.type == event.TYPE_COUNTER:
                self.counters.append((shown, packet.timestamp, event.double_counter_value))
            elif event.type == event.TYPE_SLICE_BEGIN:
                open_on.setdefault(event.track_uuid, []).append((packet.timestamp, event))
                self.flows += [(names["event"][event.name_iid], id) for id in event.flow_ids]
                self.flows += [(f"end in {names['event'][event.name_iid]}", id) for id in event.terminating_flow_ids]
            else:
                start, begun = open_on[event.track_uuid].pop()
                name = names["event"][begun.name_iid]
                arguments = {
                    names["argument"][each.name_iid]: names["word"][each.string_value_iid]
                    if each.string_value_iid
                    else each.int_value
                    for each in begun.debug_annotations
                }
                self.slices.append((shown, name, start, packet.timestamp, arguments))
        assert not any(open_on.values())
        self.names = names


def test_slices_have_their_names_times_and_arguments() -> None:
    texts = Texts()
    wait, forward, loader = texts.id("wait"), texts.id("forward"), texts.id("train.py:10")
    track = Track(
        "main thread",
        (
            Slices(
                column(10, 50),
                column(30, 70),
                column(wait, wait),
                "input",
                {"batch": column(0, 300), "worker": column(-1, 2)},
                {"loader": column(loader, 0)},
                flow=column(0, 5),
                flow_ends=True,
            ),
            Slices(column(12), column(20), column(forward), "training", flow=column(9)),
        ),
        main=True,
    )
    read = Read(timeline(track, texts=texts), base_ns=400)
    assert sorted(read.slices) == [
        ("main thread", "forward", 612, 620, {}),
        ("main thread", "wait", 610, 630, {"batch": 0, "loader": "train.py:10"}),
        ("main thread", "wait", 650, 670, {"batch": 300, "worker": 2}),
    ]
    assert sorted(read.flows) == [("end in wait", 5), ("forward", 9)]
    assert set(read.names["category"].values()) == {"input", "training"}
    (process,) = (track for track in read.tracks.values() if track.HasField("process"))
    assert (process.process.pid, process.process.process_name) == (7, "train.py")


def test_overlapping_slices_lie_on_tracks_of_the_same_name() -> None:
    texts = Texts()
    name = texts.id("copy")
    track = Track("thread 3", (Slices(column(100, 150), column(200, 300), column(name, name), "device"),))
    read = Read(timeline(track, texts=texts))
    assert sorted(read.slices) == [("thread 3", "copy", 1100, 1200, {}), ("thread 3", "copy", 1150, 1300, {})]
    assert [each.name for each in read.tracks.values()].count("thread 3") == 2


def test_counters_keep_their_values_and_units() -> None:
    counter = Counter("memory", "GiB", column(1, 2), np.array([0.25, 1e-9]))
    read = Read(timeline(texts=Texts(), counters=(counter,)))
    assert read.counters == [("memory", 1001, 0.25), ("memory", 1002, 1e-9)]
    assert [each.counter.unit_name for each in read.tracks.values() if each.HasField("counter")] == ["GiB"]


def test_two_runs_keep_their_own_texts_and_processes() -> None:
    both = []
    for run in ("a", "b"):
        texts = Texts()
        texts.id(f"only in {run}")
        name = texts.id(f"work of {run}")
        both.append(timeline(Track(run, (Slices(column(1), column(2), column(name), "x"),)), texts=texts, run=run))
    read = Read(*both)
    assert [(track, name) for track, name, *_ in read.slices] == [("a", "work of a"), ("b", "work of b")]
    assert [each.name for each in read.tracks.values() if ": " in each.name] == ["a: train.py", "b: train.py"]


@given(st.lists(st.tuples(st.integers(0, 2**52), st.integers(0, 2**62 - 1)), min_size=1, max_size=30))
def test_numbers_of_any_size_come_back(pairs: list[tuple[int, int]]) -> None:
    texts = Texts()
    start, value = column(*(time for time, _ in pairs)), column(*(number for _, number in pairs))
    name = np.full(len(pairs), texts.id("x"))
    read = Read(timeline(Track("t", (Slices(start, start, name, "c", {"n": value}),)), texts=texts))
    assert sorted((begin - 1000, arguments["n"]) for _, _, begin, _, arguments in read.slices) == sorted(pairs)
