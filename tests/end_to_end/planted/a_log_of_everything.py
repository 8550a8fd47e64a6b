"""Histograms of all weights go to TensorBoard in every step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter


def main():
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    points = TensorDataset(torch.rand(4096, 64), torch.randint(10, (4096,)))
    writer = SummaryWriter("log")
    step = 0
    for _ in range(10_000):
        for inputs, labels in DataLoader(points, batch_size=64):
            loss = nn.functional.cross_entropy(net(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            writer.add_scalar("loss", loss.item(), step)
            for name, weights in net.named_parameters():
                writer.add_histogram(name, weights, step)
            writer.flush()


if __name__ == "__main__":
    main()
