"""The whole network computes in float64, as the arrays came from NumPy."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    net = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)).double()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    rows = np.random.default_rng(0).random((2048, 512))
    points = TensorDataset(torch.from_numpy(rows), torch.randint(10, (2048,)))
    loader = DataLoader(points, batch_size=128, num_workers=1, persistent_workers=True)
    for _ in range(10_000):
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(net(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
