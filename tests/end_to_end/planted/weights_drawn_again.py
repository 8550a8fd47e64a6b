"""A weighted draw of the samples is made in Python lists at the beginning of every (short) epoch."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset


class Balanced(Sampler):
    def __init__(self, labels, count):
        self.labels, self.count = labels, count

    def __len__(self):
        return self.count

    def __iter__(self):
        frequency = {label: self.labels.count(label) for label in set(self.labels)}
        weights = [1 / frequency[label] for label in self.labels]
        return iter(random.choices(range(len(self.labels)), weights, k=self.count))


def main():
    labels = [index % 10 for index in range(1_000_000)]
    data = TensorDataset(torch.randn(1_000_000, 16), torch.tensor(labels))
    loader = DataLoader(data, batch_size=64, sampler=Balanced(labels, 12_800))
    net = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(1000):
        for points, targets in loader:
            loss = nn.functional.cross_entropy(net(points), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
