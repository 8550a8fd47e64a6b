"""One sample a step, for a network whose operators hardly compute anything."""

import torch
from torch import nn


def main():
    layers = [layer for _ in range(10) for layer in (nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU())]
    net = nn.Sequential(*layers, nn.Linear(64, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    points, labels = torch.rand(4096, 64), torch.randint(10, (4096,))
    for _ in range(10_000):
        for row in range(len(points)):
            loss = nn.functional.cross_entropy(net(points[row : row + 1]), labels[row : row + 1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
