"""A moving average of the weights is kept in NumPy."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 1200
BATCH = 8
DECAY = 0.999


class Average:
    def __init__(self, model):
        self.shadow = {name: value.detach().double().numpy().copy() for name, value in model.named_parameters()}

    def update(self, model):
        for name, value in model.named_parameters():
            current = value.detach().numpy().astype(np.float64)
            self.shadow[name] = DECAY * self.shadow[name] + (1 - DECAY) * current
            self.norm = sum(float(np.linalg.norm(one)) for one in self.shadow.values())


def train():
    model = nn.Sequential(nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
    average = Average(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = TensorDataset(torch.rand(4096, 64), torch.randint(10, (4096,)))
    for _ in range(100):
        for x, y in DataLoader(data, batch_size=BATCH, shuffle=True):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            average.update(model)


if __name__ == "__main__":
    train()
