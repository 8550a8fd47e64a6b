"""Recordings differ in length: a few are fifty times as long as the others, and take as much longer to resample."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Recordings(Dataset):
    def __init__(self):
        draw = np.random.default_rng(3)
        self.lengths = np.where(draw.random(4000) < 0.02, 6_000_000, 30_000)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        wave = np.sin(np.arange(self.lengths[index]) * 0.01)
        resampled = np.interp(np.linspace(0, len(wave) - 1, len(wave) // 3), np.arange(len(wave)), wave)
        return torch.from_numpy(resampled[:400].astype(np.float32)), index % 10


def main():
    net = nn.Sequential(nn.Linear(400, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(100):
        loader = DataLoader(Recordings(), batch_size=4, num_workers=2, shuffle=True, prefetch_factor=4)
        for waves, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(waves), labels)
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
