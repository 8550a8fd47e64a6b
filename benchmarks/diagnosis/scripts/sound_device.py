"""Prepared features for a large network; a pause stands for the device that runs it."""

import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEP_MS = 50
BATCH = 32


class Features(Dataset):
    def __init__(self, path):
        if not path.exists():
            np.save(path, np.random.default_rng(0).random((4000, 256), dtype=np.float32))
        self.rows = np.load(path, mmap_mode="r")

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = torch.from_numpy(np.array(self.rows[index]))
        return (row - row.mean()) / row.std(), index % 8


class Large(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(256, 8)

    def forward(self, x):
        time.sleep(STEP_MS / 1000 * len(x) / BATCH)
        return self.last(x)


def main():
    model = Large()
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(
        Features(Path("features.npy")), batch_size=BATCH, shuffle=True, num_workers=2, persistent_workers=True
    )
    for epoch in range(100):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
