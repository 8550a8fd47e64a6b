"""Only the head is trained, but every step computes gradients of the whole backbone."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [nn.Conv2d(3, 32, 3, stride=2), nn.ReLU()]
        for _ in range(4):
            layers += [nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
        self.backbone = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(32, 10)

    def forward(self, images):
        return self.head(self.backbone(images))


def main():
    net = Classifier()
    optimizer = torch.optim.Adam(net.head.parameters(), lr=1e-3)
    pictures = TensorDataset(torch.rand(1024, 3, 48, 48), torch.randint(10, (1024,)))
    loader = DataLoader(pictures, batch_size=32, shuffle=True, num_workers=1, persistent_workers=True)
    for _ in range(10_000):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(net(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
