"""The tensors between the layers are large, and their memory comes anew from the kernel in every step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    pictures = TensorDataset(torch.rand(256, 3, 96, 96), torch.randint(10, (256,)))
    loader = DataLoader(pictures, batch_size=32, shuffle=True)
    for _ in range(10_000):
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(net(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
