"""A small network of depthwise convolutions of 7 x 7, as ConvNeXt has them, on pictures laid out channels first."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

SIZE, CHANNELS, CLASSES = 64, 96, 10


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.depthwise = nn.Conv2d(CHANNELS, CHANNELS, 7, padding=3, groups=CHANNELS)
        self.norm, self.mix = nn.BatchNorm2d(CHANNELS), nn.Conv2d(CHANNELS, CHANNELS, 1)

    def forward(self, x):
        return x + F.relu(self.mix(self.norm(self.depthwise(x))))


def main():
    stem = nn.Conv2d(3, CHANNELS, 4, 4)
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, CLASSES))
    net = nn.Sequential(stem, *(Block() for _ in range(4)), head)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    pictures = TensorDataset(torch.randn(2_000, 3, SIZE, SIZE), torch.randint(0, CLASSES, (2_000,)))
    while True:
        for x, y in DataLoader(pictures, 16, shuffle=True):
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
