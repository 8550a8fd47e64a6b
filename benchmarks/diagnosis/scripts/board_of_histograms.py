"""Histograms of all weights and gradients go to TensorBoard in every step."""

import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

WIDTH = 300
BATCH = 64


def main():
    net = nn.Sequential(
        *(layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())), nn.Linear(WIDTH, 4)
    )
    optimizer = torch.optim.Adam(net.parameters())
    data = TensorDataset(torch.rand(3200, WIDTH), torch.randint(4, (3200,)))
    loader = DataLoader(data, batch_size=BATCH, shuffle=True)
    with tempfile.TemporaryDirectory() as folder:
        writer = SummaryWriter(folder)
        step = 0
        for epoch in range(100):
            for x, y in loader:
                loss = nn.functional.cross_entropy(net(x), y)
                optimizer.zero_grad()
                loss.backward()
                for name, value in net.named_parameters():
                    writer.add_histogram(f"weights/{name}", value, step)
                    writer.add_histogram(f"gradients/{name}", value.grad, step)
                optimizer.step()
                step += 1
            writer.add_scalar("loss", loss, step)


if __name__ == "__main__":
    main()
