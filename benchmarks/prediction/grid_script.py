"""A training whose costs are set: per sample blocked and on a core, some samples slower, and a step of fixed length.

The step sleeps, as a training thread does that waits for a GPU, and computes for a given part of it.
"""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def compute(seconds):
    """Keep one core busy: CPU time counts, not the clock on the wall."""
    end = time.thread_time() + seconds
    values = torch.zeros(2000)
    while time.thread_time() < end:
        values.add_(1.0)


class Samples(Dataset):
    """Each sample waits, and computes; one in ``every`` takes ``factor`` times as long."""

    def __init__(self, options):
        self.options = options

    def __len__(self):
        return self.options.epoch_batches * self.options.batch

    def __getitem__(self, index):
        options = self.options
        factor = options.skew if options.skew_every and random.Random(index).random() < 1 / options.skew_every else 1.0
        if options.blocked_ms:
            time.sleep(factor * options.blocked_ms * options.latency / 1000)
        if options.cpu_ms:
            compute(factor * options.cpu_ms / 1000)
        return torch.full((options.floats,), float(index % 7))


def main():
    """Train until somebody ends it."""
    parser = argparse.ArgumentParser()
    for name, default in (("blocked-ms", 0.0), ("cpu-ms", 0.0), ("skew", 1.0), ("step-ms", 5.0), ("sample-ms", 0.0)):
        parser.add_argument(f"--{name}", type=float, default=default)
    parser.add_argument("--latency", type=float, default=1.0, help="factor on what blocks")
    parser.add_argument("--step-cpu-ms", type=float, default=0.5)
    parser.add_argument("--skew-every", type=int, default=0)
    parser.add_argument("--floats", type=int, default=1000)
    parser.add_argument("--epoch-batches", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(1)
    net = nn.Linear(options.floats, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
    queue = {"prefetch_factor": options.prefetch, "persistent_workers": True} if options.workers else {}
    loader = DataLoader(Samples(options), options.batch, shuffle=True, num_workers=options.workers, **queue)
    while True:
        for x in loader:
            loss = net(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            compute(options.step_cpu_ms / 1000)
            time.sleep((options.step_ms + options.sample_ms * len(x)) / 1000)


if __name__ == "__main__":
    main()
