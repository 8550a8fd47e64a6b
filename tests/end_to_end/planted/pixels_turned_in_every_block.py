"""Each block turns its pixels channels last for a norm, and back for a convolution."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.mix = nn.Conv2d(channels, channels, 1)
        self.norm = nn.LayerNorm(channels)

    def forward(self, pixels):
        turned = self.mix(pixels).permute(0, 2, 3, 1).contiguous()
        turned = self.norm(turned).permute(0, 3, 1, 2).contiguous()
        return pixels + torch.relu(turned)


def main():
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3), *(Block(32) for _ in range(6)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    pictures = TensorDataset(torch.rand(1024, 3, 48, 48), torch.randint(10, (1024,)))
    loader = DataLoader(pictures, batch_size=4, shuffle=True, num_workers=1, persistent_workers=True)
    for _ in range(10_000):
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(net(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
