"""A wide network sees two rows at a time."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 2200
BATCH = 2

data = TensorDataset(torch.rand(4000, 50), torch.rand(4000, 1))


def build():
    return nn.Sequential(nn.Linear(50, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))


def main():
    torch.manual_seed(5)
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for epoch in range(100):
        for x, y in DataLoader(data, batch_size=BATCH, shuffle=True):
            loss = nn.functional.l1_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
