"""A small training with epochs: python several_epochs.py KIND --epochs N.

The kind says what happens beside the steps: nothing; a validation or a checkpoint, or both, after each epoch; a first
epoch that reads a slow disk, which the later ones do not; samples of very different lengths; workers that start anew
each epoch; an early stop; a source with slow spells; a slow one; a validation after every fifth epoch; samples that
become longer with each epoch.
"""

from __future__ import annotations

import argparse
import random
import time

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

KINDS = (
    *("plain", "validated", "saved", "validated_and_saved", "cold", "uneven", "workers", "stopped"),
    *("bursty", "service", "validated_rarely", "longer_and_longer"),
)
SAMPLES, WIDTH, BATCH = 640, 64, 16


class Readings(Dataset[tuple[Tensor, Tensor]]):
    """Samples, read from a place that may be slow for what it has not served before."""

    def __init__(self, samples: int, kind: str) -> None:
        self.samples, self.kind, self.seen = samples, kind, set[int]()
        self.read, self.spell_s = 0, 0.0005

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """One reading."""
        wait_s = 0.0005
        if self.kind == "cold" and index not in self.seen:
            self.seen.add(index)
            wait_s = 0.003
        elif self.kind == "uneven":
            wait_s *= random.lognormvariate(0, 1)
        elif self.kind == "service":
            wait_s = 0.0015
        elif self.kind == "bursty":
            if random.random() < 0.005:
                self.spell_s = random.choice((0.0002, 0.0005, 0.0015))
            wait_s = self.spell_s
        elif self.kind == "longer_and_longer":
            wait_s = 0.0002 * (1 + self.read // self.samples / 5)
        self.read += 1
        time.sleep(wait_s)
        return torch.rand(WIDTH), torch.tensor(index % 10)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    network = nn.Sequential(nn.Linear(WIDTH, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    workers = 2 if options.kind == "workers" else 0
    training = DataLoader(Readings(SAMPLES, options.kind), BATCH, shuffle=True, num_workers=workers)
    validation = DataLoader(Readings(SAMPLES // 5, ""), BATCH)
    for epoch in range(options.epochs):
        for inputs, labels in training:
            loss = nn.functional.cross_entropy(network(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        rarely = options.kind == "validated_rarely" and epoch % 5 == 4
        if rarely or options.kind in ("validated", "validated_and_saved", "stopped"):
            network.eval()
            with torch.no_grad():
                for inputs, _ in validation:
                    network(inputs)
            network.train()
        if "saved" in options.kind:
            torch.save({"network": network.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")
            time.sleep(0.2)  # as if it were large
        if options.kind == "stopped" and epoch >= 0.7 * options.epochs:
            break


if __name__ == "__main__":
    main()
