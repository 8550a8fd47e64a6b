#!/usr/bin/env python3
"""What the live page costs: the CPU time of its process while no, one and seven pages are open, one of them idle.

Usage: python benchmarks/live/run.py [--seconds S] [--output FILE]
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))

from conditions import head

VIEWERS = (0, 1, 7)
TRAINING = """
import time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Noise(Dataset):
    def __len__(self):
        return 4096
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.randn(64), index % 2

model = nn.Linear(64, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    for x, y in DataLoader(Noise(), 16, num_workers=1):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
"""


def reading(url: str) -> None:
    """A viewer that takes all events."""
    parts = urlsplit(url)
    try:
        with urllib.request.urlopen(f"{parts.scheme}://{parts.netloc}/events?{parts.query}") as answer:
            while answer.read1(1 << 16):
                pass
    except OSError:
        pass


def standing(url: str) -> socket.socket:
    """A viewer that asks for events and takes none."""
    parts = urlsplit(url)
    made = socket.create_connection((parts.hostname or "", parts.port or 0))
    made.sendall(f"GET /events?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
    return made


def share_of_a_core(run: Path, viewers: int, seconds: float) -> float:
    """CPU time of the process that serves the page, divided by the time."""
    words = [sys.executable, "-m", "flatout", "watch", str(run), "--page", "--quiet"]
    served = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert served.stderr is not None
    address = re.search(r"http://\S+", served.stderr.readline())
    assert address is not None, "no address was printed"
    threading.Thread(target=served.stderr.read, daemon=True).start()
    opened = [standing(address[0])] if viewers > 1 else []
    for _ in range(viewers - len(opened)):
        threading.Thread(target=reading, args=(address[0],), daemon=True).start()
    process = psutil.Process(served.pid)
    time.sleep(3)
    before, begin_s = process.cpu_times(), time.monotonic()
    time.sleep(seconds)
    after, spent_s = process.cpu_times(), time.monotonic() - begin_s
    served.terminate()
    served.wait()
    for one in opened:
        one.close()
    return (after.user + after.system - before.user - before.system) / spent_s


def main() -> int:
    """Record a training, and watch it with no, one and seven pages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=40.0, help="of each measurement")
    parser.add_argument("--output", type=Path, help="write a page of measurements")
    given = parser.parse_args()
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(TRAINING)
        runs = Path(folder) / "runs"
        flatout = [sys.executable, "-m", "flatout", "profile", "--full", "--runs-dir", str(runs), "-q", "--"]
        recording = subprocess.Popen(
            [*flatout, sys.executable, str(script)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(25)
        run = next(runs.glob("*-train"))
        rows = [f"| {viewers} | {share_of_a_core(run, viewers, given.seconds):.1%} |" for viewers in VIEWERS]
        recording.terminate()
        recording.wait()
    lines = [
        *head("The live page", "benchmarks/live/run.py", [], {}),
        f"- Share of one core that `flatout watch --page` took in {given.seconds:.0f} s, its look at the record once a "
        f"second included; of seven viewers one reads nothing. The load of the machine was {before:.1f} at the start.",
        "",
        "| pages open | share of a core |",
        "|---|---|",
        *rows,
    ]
    print("\n".join(lines))
    if given.output:
        given.output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
