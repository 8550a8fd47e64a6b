"""A tutorial's LightningModule and LightningDataModule, with a data set of one's own."""

import time

import numpy as np
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

POINTS = 60_000
BATCH = 16
STEP_MS = 40


class Clouds(Dataset):
    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        draw = np.random.default_rng(index)
        cloud = draw.standard_normal((POINTS, 3)).astype(np.float32)
        histogram, _ = np.histogramdd(cloud[::4], bins=8, range=[(-2, 2)] * 3)
        return torch.from_numpy(histogram.astype(np.float32)), index % 3


class CloudData(pl.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(Clouds(), batch_size=BATCH, shuffle=True)


class CloudModel(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 3))

    def forward(self, x):
        time.sleep(STEP_MS / 1000)  # a busy accelerator
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    trainer = pl.Trainer(
        max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    trainer.fit(CloudModel(), CloudData())


if __name__ == "__main__":
    main()
