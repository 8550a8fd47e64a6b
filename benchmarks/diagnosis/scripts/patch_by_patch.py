"""Patches of slides; each is unpacked from a slide of its own, and the batch is small."""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH = 2


class Slides(Dataset):
    def __init__(self, folder):
        self.files = sorted(Path(folder).glob("*.npz"))

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        with np.load(self.files[index % len(self.files)]) as slide:
            field = slide["field"]
        return torch.from_numpy(field[:, :160, :160].copy()), index % 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 16, 8, stride=8)
        self.out = nn.Linear(16, 2)

    def forward(self, x):
        return self.out(torch.relu(self.conv(x)).mean((2, 3)))


def main():
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    for x, y in DataLoader(Slides(sys.argv[1]), batch_size=BATCH, num_workers=2):
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
