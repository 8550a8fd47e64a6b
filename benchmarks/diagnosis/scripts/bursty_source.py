"""A source that now and then makes everybody wait, and a loader that keeps one batch ahead."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEP_MS = 15
STALL_MS = 250
EVERY = 40


class Readings(Dataset):
    def __init__(self):
        self.values = torch.rand(512, 96)

    def __len__(self):
        return 200_000

    def __getitem__(self, index):
        if (index // 8) % EVERY == EVERY - 1 and index % 8 == 0:
            time.sleep(STALL_MS / 1000)
        return self.values[index % 512], index % 5


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(96, 5)

    def forward(self, x):
        time.sleep(STEP_MS / 1000)  # a device at work
        return self.layer(x)


def main():
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(Readings(), batch_size=8, num_workers=1, prefetch_factor=2):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
