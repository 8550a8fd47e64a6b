"""A convolutional network whose blocks turn their pictures for a norm over channels, and back again."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CHANNELS = 32
BATCH = 6
SIDE = 48


class Turned(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(CHANNELS)

    def forward(self, x):
        x = self.norm(x.permute(0, 2, 3, 1).contiguous())
        return x.permute(0, 3, 1, 2).contiguous()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Conv2d(CHANNELS, CHANNELS, 1)
        self.norm = Turned()

    def forward(self, x):
        return x + nn.functional.relu(self.norm(self.mix(x)))


def main():
    net = nn.Sequential(
        nn.Conv2d(3, CHANNELS, 3), *(Block() for _ in range(6)), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(CHANNELS, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    pictures = TensorDataset(torch.rand(960, 3, SIDE, SIDE), torch.randint(10, (960,)))
    loader = DataLoader(pictures, BATCH, shuffle=True, num_workers=1, persistent_workers=True)
    for epoch in range(100):
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, round(loss.item(), 4))


if __name__ == "__main__":
    main()
