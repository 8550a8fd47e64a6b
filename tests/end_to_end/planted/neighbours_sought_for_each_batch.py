"""Each batch is put together from recordings of similar length, sought among all of them by the batch sampler."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset


class Similar(Sampler):
    def __init__(self, lengths, size, batches):
        self.lengths, self.size, self.batches = lengths, size, batches

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            wanted = random.choice(self.lengths)
            nearest = sorted(range(len(self.lengths)), key=lambda index: abs(self.lengths[index] - wanted))
            yield nearest[: self.size]


def main():
    lengths = [random.randint(1, 2000) for _ in range(60_000)]
    data = TensorDataset(torch.randn(60_000, 64), torch.randint(10, (60_000,)))
    loader = DataLoader(data, batch_sampler=Similar(lengths, 64, 500), num_workers=1)
    net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(100):
        for points, targets in loader:
            loss = nn.functional.cross_entropy(net(points), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
