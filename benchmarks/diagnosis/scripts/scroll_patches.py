"""Patches of a scanned volume, cut out at random places; class based, two modules in one."""

import argparse
from dataclasses import dataclass

import numpy as np
import tifffile
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PATCH = 32
BATCH = 2


@dataclass
class Config:
    volume: str
    workers: int = 2
    steps: int = 5000


class Patches(Dataset):
    def __init__(self, path):
        self.path = path
        with tifffile.TiffFile(path) as file:
            self.shape = file.series[0].shape

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        draw = np.random.default_rng(index)
        z, y, x = (int(draw.integers(0, size - PATCH + 1)) for size in self.shape)
        volume = tifffile.imread(self.path)
        cut = volume[z : z + PATCH, y : y + PATCH, x : x + PATCH]
        return torch.from_numpy(cut.astype(np.float32) / 255).unsqueeze(0), torch.tensor(float(cut.mean() > 100))


class InkNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv3d(1, 8, 4, stride=4), nn.ReLU(), nn.AdaptiveAvgPool3d(2), nn.Flatten())
        self.head = nn.Linear(64, 1)

    def forward(self, x):
        return self.head(self.body(x)).squeeze(1)


class Training:
    def __init__(self, config):
        self.config = config
        self.net = InkNet()
        self.optimizer = torch.optim.AdamW(self.net.parameters())
        self.loader = DataLoader(Patches(config.volume), batch_size=BATCH, num_workers=config.workers)

    def step(self, patches, ink):
        loss = nn.functional.binary_cross_entropy_with_logits(self.net(patches), ink)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def run(self):
        for number, (patches, ink) in enumerate(self.loader):
            loss = self.step(patches, ink)
            if number % 100 == 0:
                print(f"Train step {number}: loss {loss.item():.4f}")
            if number == self.config.steps:
                return


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("volume")
    Training(Config(parser.parse_args().volume)).run()
