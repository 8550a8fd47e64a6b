"""One image a step, taken from memory by the loop itself, for a network that could take many."""

import torch
from torch import nn


def main():
    net = nn.Sequential()
    for place in range(12):
        net.append(nn.Conv2d(8 if place else 1, 8, 3, padding=1))
        net.append(nn.BatchNorm2d(8))
        net.append(nn.ReLU())
    net.append(nn.Conv2d(8, 2, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    scans, masks = torch.rand(512, 1, 24, 24), torch.randint(2, (512, 24, 24))
    for _ in range(10_000):
        for place in torch.randperm(len(scans)).tolist():
            loss = nn.functional.cross_entropy(net(scans[place : place + 1]), masks[place : place + 1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
