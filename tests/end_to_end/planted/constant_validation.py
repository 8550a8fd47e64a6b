"""The whole validation set is evaluated after every fifth step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def validate(net, loader):
    net.eval()
    right = 0
    with torch.no_grad():
        for pictures, labels in loader:
            right += (net(pictures).argmax(1) == labels).sum()
    net.train()
    return right.item()


def main():
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.Flatten(), nn.Linear(16 * 28 * 28, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    training = TensorDataset(torch.rand(512, 3, 32, 32), torch.randint(10, (512,)))
    held_out = TensorDataset(torch.rand(512, 3, 32, 32), torch.randint(10, (512,)))
    step = 0
    for _ in range(10_000):
        for pictures, labels in DataLoader(training, batch_size=32, shuffle=True):
            loss = nn.functional.cross_entropy(net(pictures), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 5 == 0:
                validate(net, DataLoader(held_out, batch_size=64))


if __name__ == "__main__":
    main()
