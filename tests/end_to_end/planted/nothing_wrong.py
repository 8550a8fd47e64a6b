"""A network that keeps its process busy, with batches that are there when it wants them."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    net = nn.Sequential(
        nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 28 * 28, 10)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    pictures = TensorDataset(torch.rand(2048, 3, 32, 32), torch.randint(10, (2048,)))
    loader = DataLoader(pictures, batch_size=32, shuffle=True, num_workers=1, persistent_workers=True)
    for _ in range(10_000):
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(net(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
