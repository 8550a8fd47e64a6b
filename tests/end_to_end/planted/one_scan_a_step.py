"""One image a step, taken from memory by the loop itself, for a network that could take many."""

import torch
from torch import nn


def main():
    # Dense layers: on every processor a step mostly reads and writes weights, whatever the number of scans.
    net = nn.Sequential(nn.Flatten(), nn.Linear(576, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU())
    net.append(nn.Linear(2048, 2 * 576)).append(nn.Unflatten(1, (2, 24, 24)))
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
