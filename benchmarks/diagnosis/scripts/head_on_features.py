"""A new head is trained on the features of a network that is not to change."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CHANNELS = 32
BATCH = 32


def block(channels):
    return nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())


class Species(nn.Module):
    def __init__(self, species=12):
        super().__init__()
        first = nn.Sequential(nn.Conv2d(3, CHANNELS, 3, stride=2), nn.ReLU())
        blocks = [block(CHANNELS) for _ in range(4)]
        self.features = nn.Sequential(first, *blocks, nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(4 * CHANNELS, 64), nn.ReLU(), nn.Linear(64, species))

    def forward(self, photographs):
        return self.head(self.features(photographs))


def main():
    net = Species()
    optimizer = torch.optim.AdamW(net.head.parameters(), lr=1e-3)
    photographs = TensorDataset(torch.rand(1024, 3, 56, 56), torch.randint(12, (1024,)))
    loader = DataLoader(photographs, batch_size=BATCH, shuffle=True, num_workers=1, persistent_workers=True)
    for epoch in range(1000):
        for images, species in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(images), species)
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
