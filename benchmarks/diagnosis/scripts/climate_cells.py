"""Predict the next field from a climate archive that is kept in compressed NumPy files."""

import sys
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

BATCH_SIZE = 8
HIDDEN = 32


class Cells(Dataset):
    def __init__(self, root):
        self.paths = sorted(Path(root).glob("*.npz"))

    def __len__(self):
        return 20_000

    def __getitem__(self, i):
        field = np.load(self.paths[i % len(self.paths)])["field"]
        top, left = 8 * (i % 16), 8 * (i % 11)
        patch = torch.from_numpy(field[:, top : top + 128, left : left + 128].copy())
        return patch[:-1], patch[-1:]


class Predictor(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.down = torch.nn.Conv2d(channels, HIDDEN, 4, stride=8)
        self.up = torch.nn.ConvTranspose2d(HIDDEN, 1, 8, stride=8)

    def forward(self, fields):
        return self.up(torch.relu(self.down(fields)))


def train(root):
    data = DataLoader(Cells(root), batch_size=BATCH_SIZE, shuffle=True, num_workers=2, persistent_workers=True)
    model = Predictor(3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(50):
        total = 0.0
        for fields, target in data:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(fields), target)
            loss.backward()
            optimizer.step()
            total += float(loss)
        print(epoch, total / len(data))


if __name__ == "__main__":
    train(sys.argv[1])
