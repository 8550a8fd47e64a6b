#!/usr/bin/env python3
"""How fast a run becomes a Perfetto trace, beside the perfetto package's builder and writing the bytes alone.

The same slices by both, in turn; then how far a kernel trace of torch's profiler lies from flatout's own clock.

Usage: python benchmarks/trace/run.py [--slices N] [--rounds N] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "shared")]

from conditions import head  # noqa: E402

from flatout.export.perfetto import write_perfetto  # noqa: E402
from flatout.export.timeline import Process, Slices, Texts, Timeline, Track  # noqa: E402

WORKERS = 8
ALIGNED = """
import json, sys, time, torch
from torch.profiler import profile, record_function
with profile() as traced:
    torch.ones(1)
    with record_function("the moment"):
        seen = time.monotonic_ns()
pair = time.monotonic_ns(), time.time_ns()
traced.export_chrome_trace(sys.argv[1])
found = json.load(open(sys.argv[1]))
begin = next(e for e in found["traceEvents"] if e.get("name") == "the moment")["ts"] * 1000
print(found["baseTimeNanoseconds"] + begin - (seen + pair[1] - pair[0]))
"""


def timeline(count: int) -> Timeline:
    """Workers that fetch batches of eight samples, a third of the slices with arguments of their own."""
    texts = Texts()
    fetch, sample = texts.id("fetch a batch"), texts.id("sample")
    batches = count // WORKERS // 9
    processes = []
    for worker in range(WORKERS):
        start = np.arange(batches) * 9_000_000 + 1_000_000_000_000_000
        items = (start[:, None] + np.arange(8) * 1_000_000).ravel()
        slices = (
            Slices(
                start,
                start + 8_500_000,
                np.full(batches, fetch),
                "input",
                {"batch": np.arange(batches), "samples": np.full(batches, 8)},
                flow=np.arange(batches) + 1,
            ),
            Slices(items, items + 900_000, np.full(len(items), sample), "input", {"index": np.arange(len(items))}),
        )
        processes.append(Process(100 + worker, f"worker {worker}", (Track("main thread", slices, main=True),)))
    return Timeline("benchmark", texts, tuple(processes), 0)


def by_package(shown: Timeline, path: Path) -> None:
    """The same trace by StreamingTraceProtoBuilder, names interned."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent
    from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

    with path.open("wb") as file:
        builder = StreamingTraceProtoBuilder(file)
        packet = builder.create_packet()
        packet.trusted_packet_sequence_id, packet.sequence_flags = 1, 1
        for id, text in shown.texts:
            name = packet.interned_data.event_names.add()
            name.iid, name.name = id, text
        for id, text in enumerate(("batch", "samples", "index"), 1):
            argument = packet.interned_data.debug_annotation_names.add()
            argument.iid, argument.name = id, text
        builder.write_packet(packet)
        for number, process in enumerate(shown.processes, 1):
            packet = builder.create_packet()
            packet.trusted_packet_sequence_id = 1
            packet.track_descriptor.uuid, packet.track_descriptor.name = number, process.name
            builder.write_packet(packet)
            batches, items = process.tracks[0].slices
            rows = zip(batches.start.tolist(), batches.end.tolist(), range(len(batches)), strict=True)
            index = iter(zip(items.start.tolist(), items.end.tolist(), range(len(items)), strict=True))
            for start, end, batch in rows:
                _begin(builder, TrackEvent, number, start, 1, ((1, batch), (2, 8)), batch + 1)
                for _ in range(8):
                    begin, finish, place = next(index)
                    _begin(builder, TrackEvent, number, begin, 2, ((3, place),), 0)
                    _end(builder, TrackEvent, number, finish)
                _end(builder, TrackEvent, number, end)


def _begin(builder, kinds, track, time_ns, name, arguments, flow) -> None:
    packet = builder.create_packet()
    packet.timestamp, packet.trusted_packet_sequence_id, packet.sequence_flags = time_ns, 1, 2
    event = packet.track_event
    event.type, event.track_uuid, event.name_iid = kinds.TYPE_SLICE_BEGIN, track, name
    for id, value in arguments:
        argument = event.debug_annotations.add()
        argument.name_iid, argument.int_value = id, value
    if flow:
        event.flow_ids.append(flow)
    builder.write_packet(packet)


def _end(builder, kinds, track, time_ns) -> None:
    packet = builder.create_packet()
    packet.timestamp, packet.trusted_packet_sequence_id = time_ns, 1
    packet.track_event.type, packet.track_event.track_uuid = kinds.TYPE_SLICE_END, track
    builder.write_packet(packet)


def ours(shown: Timeline, path: Path) -> None:
    """The trace by flatout."""
    with path.open("wb") as file:
        write_perfetto(file, [shown], 0)


def copied(content: bytes) -> Callable[[Timeline, Path], None]:
    """A writer of bytes that are there already."""

    def write(_: Timeline, path: Path) -> None:
        path.write_bytes(content)

    return write


def seconds(write: Callable[[Timeline, Path], None], shown: Timeline, path: Path) -> float:
    """CPU seconds of this process."""
    begin = time.process_time()
    write(shown, path)
    return time.process_time() - begin


def main() -> int:
    """Measure, print the page, and write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slices", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    shown, small = timeline(asked.slices), timeline(asked.slices // 20)
    rounds, apart_us = [], []
    with tempfile.TemporaryDirectory(prefix="trace-") as folder:
        path = Path(folder) / "t.pftrace"
        for _ in range(asked.rounds):
            mine = seconds(ours, shown, path)
            size = path.stat().st_size
            alone = seconds(copied(path.read_bytes()), shown, path)
            package = seconds(by_package, small, path)
            rounds.append((mine / shown.slices, alone / shown.slices, package / small.slices, size / shown.slices))
            package_bytes = path.stat().st_size / small.slices
        for _ in range(asked.rounds):
            done = subprocess.run([sys.executable, "-c", ALIGNED, path], capture_output=True, text=True, check=True)
            apart_us.append(abs(json.loads(done.stdout)) / 1e3)
    mine, alone, package, size = (statistics.median(column) for column in zip(*rounds, strict=True))
    ratios = sorted(package / mine for mine, _, package, _ in rounds)
    lines = [
        *head("Traces", "benchmarks/trace/run.py", ["torch", "perfetto"], {}),
        f"- {shown.slices:,} slices with arguments, a ninth of them with a flow; CPU time of one process, medians of "
        f"{asked.rounds} rounds in turn. The package wrote {small.slices:,} of the same.",
        "",
        "| writer | slices/s | bytes a slice | flatout's rate / its |",
        "|---|---|---|---|",
        f"| flatout | {1 / mine:,.0f} | {size:.0f} | - |",
        f"| perfetto's StreamingTraceProtoBuilder | {1 / package:,.0f} | {package_bytes:.0f} | "
        f"{statistics.median(ratios):.1f} ({ratios[0]:.1f}-{ratios[-1]:.1f}) |",
        f"| the bytes alone, to a file | {1 / alone:,.0f} | {size:.0f} | {alone / mine:.2f} |",
        "",
        f"A moment that torch's profiler recorded lies {statistics.median(apart_us):.0f} µs (at most "
        f"{max(apart_us):.0f} µs, n = {len(apart_us)}) from flatout's clock, the time between both readings included.",
    ]
    print("\n".join(lines))
    if asked.output:
        asked.output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
