"""Each sample waits for a lock server or a rate limit (here: a sleep), and one worker waits for one at a time."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class RateLimited(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.full((32,), float(index % 7)), index % 10


def main():
    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for points, labels in DataLoader(RateLimited(), batch_size=8, num_workers=1):
        loss = nn.functional.cross_entropy(net(points), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
