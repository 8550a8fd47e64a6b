"""Somebody looked for a NaN, found it, and left the detection on."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.autograd.set_detect_anomaly(True)
    layers = [nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.ReLU()) for _ in range(30)]
    net = nn.Sequential(*layers, nn.Linear(64, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    points = TensorDataset(torch.rand(4096, 64), torch.randint(10, (4096,)))
    loader = DataLoader(points, batch_size=32, shuffle=True, num_workers=1, persistent_workers=True)
    for _ in range(10_000):
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(net(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
