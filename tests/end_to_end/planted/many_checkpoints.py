"""A model of 64 MB is saved after every fifth step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    net = nn.Sequential(nn.EmbeddingBag(62_500, 256, sparse=True), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    points = TensorDataset(torch.randint(62_500, (4096, 16)), torch.randint(10, (4096,)))
    step = 0
    for _ in range(10_000):
        for inputs, labels in DataLoader(points, batch_size=64):
            loss = nn.functional.cross_entropy(net(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 5 == 0:
                torch.save(net.state_dict(), "checkpoint.pt")


if __name__ == "__main__":
    main()
