#!/usr/bin/env python3
"""How fast logs are read, and in how much memory, beside reading the same bytes line by line.

Each format is written anew at the size asked for and read in a process of its own.

Usage: python benchmarks/logs/run.py [--megabytes N] [--rounds N] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "shared")]

from conditions import head  # noqa: E402

READ = """
import json, resource, sys, time
from pathlib import Path
from flatout.logs.reading import read_file
path = Path(sys.argv[1])
began = time.process_time()
facts = read_file(path, path.name)
print(json.dumps([time.process_time() - began, facts.observations, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""
LINES = """
import json, resource, sys, time
began = time.process_time()
count = sum(1 for _ in open(sys.argv[1], "rb"))
print(json.dumps([time.process_time() - began, count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""


def bar() -> Iterator[bytes]:
    """Tqdm's bar with carriage returns."""
    epoch = 0
    while True:
        for n in range(1, 5005):
            done = n * 20 // 5004
            yield (
                f"\rEpoch {epoch}: {n * 100 // 5004:3d}%|{'█' * done}{' ' * (20 - done)}| {n}/5004 "
                f"[{n // 120:02d}:{n // 2 % 60:02d}<{41 - n // 122:02d}:00,  2.03it/s, loss={6 - n / 5004:.3f}]"
            ).encode()
        yield b"\n"
        epoch += 1


def steps() -> Iterator[bytes]:
    """Lines of PyTorch's ImageNet example."""
    epoch = 0
    while True:
        for n in range(0, 5005, 10):
            yield (
                f"Epoch: [{epoch}][{n:4d}/5005]\tTime  0.512 ( 0.913)\tData  0.001 ( 0.331)\tLoss 7.0e+00 (7.0e+00)\t"
                "Acc@1   0.00 (  0.10)\tAcc@5   0.78 (  0.50)\n"
            ).encode()
        epoch += 1


def chatter() -> Iterator[bytes]:
    """What most of a job's log is: lines that say nothing about the training's speed."""
    n = 0
    while True:
        n += 1
        yield (
            f"2026-11-02 10:00:{n % 60:02d},{n % 1000:03d} INFO worker-{n % 8} heartbeat ok, "
            f"queue has {n % 17} items, host node{n % 4}\n"
        ).encode()


def trace() -> Iterator[bytes]:
    """torch.profiler's events."""
    yield b'{"schemaVersion": 1, "baseTimeNanoseconds": 1700000000000000000, "traceEvents": [\n'
    n = 0
    while True:
        n += 1
        yield (
            f'  {{\n    "ph": "X", "cat": "cpu_op", "name": "aten::add_", "pid": 42, "tid": 42,\n'
            f'    "ts": {n * 10}.123, "dur": 5.120,\n'
            f'    "args": {{\n      "External id": {n},"Sequence number": {n}, "Fwd thread id": 0\n    }}\n  }},\n'
        ).encode()


def csv() -> Iterator[bytes]:
    """nvidia-smi --query-gpu."""
    yield b"timestamp, name, utilization.gpu [%], memory.used [MiB], power.draw [W]\n"
    n = 0
    while True:
        n += 1
        yield (
            f"2026/11/02 {n // 3600 % 24:02d}:{n // 60 % 60:02d}:{n % 60:02d}.000, NVIDIA A10G, {n % 100} %, "
            "12900 MiB, 211.00 W\n"
        ).encode()


def events() -> Iterator[bytes]:
    """TensorBoard scalars."""
    n = 0
    while True:
        n += 1
        value = b"\x0a\x0atrain/loss\x15" + struct.pack("<f", 2.0)
        step = b"\x10" + struct.pack("B", n % 128)
        event = (
            b"\x09"
            + struct.pack("<d", 1.7e9 + n)
            + step
            + b"\x2a"
            + bytes([len(value) + 2])
            + b"\x0a"
            + bytes([len(value)])
            + value
        )
        yield struct.pack("<Q", len(event)) + b"\0" * 4 + event + b"\0" * 4


FORMATS: dict[str, tuple[str, Callable[[], Iterator[bytes]]]] = {
    "tqdm": ("tqdm.log", bar),
    "step lines": ("steps.log", steps),
    "other lines": ("job.log", chatter),
    "torch trace": ("trace.json", trace),
    "nvidia-smi CSV": ("gpu.csv", csv),
    "TensorBoard": ("events.out.tfevents.1", events),
}

HEAD = ["| format | MB/s of CPU time | peak memory | lines alone, MB/s |", "|---|---|---|---|"]


def write(path: Path, size: int, parts: Iterator[bytes]) -> None:
    """Write parts until ``size`` bytes are there."""
    written = 0
    with path.open("wb") as file:
        while written < size:
            piece = next(parts)
            file.write(piece)
            written += len(piece)


def measure(code: str, path: Path) -> tuple[float, int, int]:
    """CPU seconds, observations and peak memory (KiB) of one process."""
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True)
    seconds, count, memory = json.loads(done.stdout)
    return seconds, count, memory


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    text = [*head("How fast logs are read", "benchmarks/logs/run.py", (), {}), "", *HEAD]
    with tempfile.TemporaryDirectory() as folder:
        for title, (name, parts) in FORMATS.items():
            path = Path(folder, name)
            write(path, given.megabytes * 10**6, parts())
            ours = [measure(READ, path) for _ in range(given.rounds)]
            alone = [measure(LINES, path) for _ in range(given.rounds)]
            rate = given.megabytes / statistics.median(one[0] for one in ours)
            plain = given.megabytes / statistics.median(one[0] for one in alone)
            text.append(f"| {title} | {rate:.0f} | {max(one[2] for one in ours) / 1024:.0f} MiB | {plain:.0f} |")
            path.unlink()
    print("\n".join(text))
    if given.output:
        given.output.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
