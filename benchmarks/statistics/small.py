"""A small training: python small.py NETWORK FEED, with steps of 5 to 80 ms.

The feed says how batches come, and what happens between steps: from memory; from a service with an even, a skewed or a
bursty latency; from files that are decompressed; with a checkpoint, a validation or a line of log now and then.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

BATCH, WIDTH = 16, 64


class Last(nn.Module):
    """The last output of a recurrent network."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.GRU(8, 24, batch_first=True)

    def forward(self, values: Tensor) -> Tensor:
        """Eight values at a time."""
        return self.cells(values.view(len(values), -1, 8))[0][:, -1]


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "dense": lambda: nn.Sequential(nn.Linear(WIDTH, 128), nn.ReLU(), nn.Linear(128, 10)),
    "conv": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)
    ),
    "recurrent": lambda: nn.Sequential(Last(), nn.Linear(24, 10)),
    "attention": lambda: nn.Sequential(
        nn.Unflatten(1, (8, 8)), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Flatten(), nn.Linear(64, 10)
    ),
}


def memory() -> Iterator[None]:
    """Batches are there."""
    while True:
        yield


def even() -> Iterator[None]:
    """A service that takes 20 ms."""
    while True:
        time.sleep(0.02)
        yield


def skewed() -> Iterator[None]:
    """A service that takes 15 ms in the median, and now and then ten times as long."""
    while True:
        time.sleep(0.015 * random.lognormvariate(0, 0.8))
        yield


def bursty() -> Iterator[None]:
    """A service with slow spells."""
    while True:
        latency_s = random.choice((0.01, 0.01, 0.03))
        for _ in range(random.randint(5, 30)):
            time.sleep(latency_s)
            yield


def files() -> Iterator[None]:
    """Files that are decompressed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "batch"
        path.write_bytes(zlib.compress(random.randbytes(200_000) + bytes(400_000)))
        while True:
            zlib.decompress(path.read_bytes())
            yield


def checkpoints() -> Iterator[None]:
    """A checkpoint every ten steps, which takes as long as five of them."""
    while True:
        for _ in range(10):
            time.sleep(0.01)
            yield
        time.sleep(0.05)


def validation() -> Iterator[None]:
    """A pass of 25 steps, then validation for as long as eight of them."""
    while True:
        for _ in range(25):
            time.sleep(0.012)
            yield
        time.sleep(0.1)


FEEDS = {feed.__name__: feed for feed in (memory, even, skewed, bursty, files, checkpoints, validation)}


def main() -> None:
    """Train without end; the seed is another one in every run."""
    network = NETWORKS[sys.argv[1]]()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    for _ in FEEDS[sys.argv[2]]():
        inputs, labels = torch.rand(BATCH, WIDTH), torch.randint(10, (BATCH,))
        loss = nn.functional.cross_entropy(network(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
