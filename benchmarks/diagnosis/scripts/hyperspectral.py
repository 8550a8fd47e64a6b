"""Hyperspectral cubes in double precision; the network uses every eighth band."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BANDS = 96
SIDE = 128
BATCH = 8


class Cubes(Dataset):
    def __init__(self):
        self.flight = np.random.default_rng(0).random((12, BANDS, SIDE, SIDE))

    def __len__(self):
        return 60_000

    def __getitem__(self, index):
        cube = self.flight[index % len(self.flight)]
        return torch.from_numpy(cube), index % 6


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(BANDS // 8, 16, 8, stride=16)
        self.head = nn.Linear(16, 6)

    def forward(self, cubes):
        bands = cubes[:, ::8].float() if cubes.shape[1] == BANDS else cubes
        return self.head(torch.relu(self.conv(bands)).mean((2, 3)))


if __name__ == "__main__":
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    loader = DataLoader(Cubes(), batch_size=BATCH, num_workers=2)
    for cubes, labels in loader:
        loss = nn.functional.cross_entropy(net(cubes), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
