"""A convolutional network on pictures that are in memory."""

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

CHANNELS = 48
BATCH = 32


def main():
    pictures = TensorDataset(torch.rand(3200, 3, 40, 40), torch.randint(10, (3200,)))
    net = nn.Sequential(
        nn.Conv2d(3, CHANNELS, 3), nn.ReLU(), nn.Conv2d(CHANNELS, CHANNELS, 3, stride=2), nn.ReLU(),
        nn.Conv2d(CHANNELS, CHANNELS, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(CHANNELS * 16, 10),
    )  # fmt: skip
    optimizer = optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(pictures, batch_size=BATCH, shuffle=True, num_workers=1, persistent_workers=True)
    for epoch in range(50):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(images), labels)
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
