"""Epochs of a few steps, and workers that are started anew for each of them."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    points = TensorDataset(torch.rand(96, 64), torch.randint(10, (96,)))
    loader = DataLoader(points, batch_size=16, shuffle=True, num_workers=2)
    for _ in range(10_000):
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(net(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
