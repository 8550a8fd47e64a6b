"""All workers read from one archive through one lock, since its library is not safe for several readers."""

import multiprocessing
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Archive:
    """Stands for a library with one handle: an entry takes 3 ms, and only one caller may be inside."""

    def __init__(self):
        self.lock = multiprocessing.Lock()

    def entry(self, index):
        with self.lock:
            end = time.perf_counter() + 0.003
            while time.perf_counter() < end:
                time.sleep(0.001)
        return torch.full((64,), float(index % 5))


class Entries(Dataset):
    def __init__(self, archive):
        self.archive = archive

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return self.archive.entry(index), index % 10


def main():
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for points, labels in DataLoader(Entries(Archive()), batch_size=16, num_workers=4):
        loss = nn.functional.cross_entropy(net(points), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
