"""The upper half of a network and its head are trained; the lower half is frozen."""

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
        self.stem = nn.Sequential(nn.Conv2d(3, CHANNELS, 3, stride=2), nn.ReLU(), block(CHANNELS), block(CHANNELS))
        self.stem.requires_grad_(False)
        self.upper = nn.Sequential(block(CHANNELS), block(CHANNELS), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(4 * CHANNELS, species)

    def forward(self, photographs):
        with torch.no_grad():
            low = self.stem(photographs)
        return self.head(self.upper(low))


def main():
    net = Species()
    optimizer = torch.optim.AdamW((weight for weight in net.parameters() if weight.requires_grad), lr=1e-3)
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
