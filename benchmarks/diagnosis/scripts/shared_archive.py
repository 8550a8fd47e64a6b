"""Entries of an archive whose reader may not be used twice at a time: a file lock sees to that."""

import fcntl
import os
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SEEK_MS = 3
BATCH = 16


class Archive(Dataset):
    """The reader's own delay stands for a device with one head."""

    def __init__(self, lock):
        self.lock = lock
        open(lock, "w").close()

    def read(self, index):
        time.sleep(SEEK_MS / 1000)
        return torch.full((128,), float(index % 10))

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        handle = os.open(self.lock, os.O_RDWR)
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            return self.read(index), index % 10
        finally:
            os.close(handle)


def main():
    net = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(Archive(sys.argv[1]), batch_size=BATCH, num_workers=4)
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
