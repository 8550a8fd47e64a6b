"""Samples come from a log that is rotated now and then, which takes a moment; only two batches are made ahead."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Log(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        if index % 320 == 319:
            time.sleep(0.1)
        return torch.full((512,), float(index % 7)), index % 10


def main():
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for points, labels in DataLoader(Log(), batch_size=16, num_workers=1, prefetch_factor=2):
        loss = nn.functional.cross_entropy(net(points), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
