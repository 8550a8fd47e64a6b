"""Surrogate for a (toy) aerodynamic solver: 24 design parameters -> lift, drag, moment."""
import numpy as np
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


def simulate(n=120_000, d=24, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    A, B = rng.normal(size=(d, 12)) / np.sqrt(d), rng.normal(size=(12, 3))
    h = np.sin(2 * X @ A) + 0.3 * (X[:, :12] * X[:, 12:])
    Y = h @ B + 0.05 * rng.normal(size=(n, 3))
    X = (X - X.mean(0)) / X.std(0)
    Y = (Y - Y.mean(0)) / Y.std(0)
    return X, Y


class WingData(pl.LightningDataModule):
    def __init__(self, batch_size=512):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage=None):
        X, Y = simulate()
        self.train = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))

    def train_dataloader(self):
        # whole batches by index, the data are in memory anyway
        sampler = BatchSampler(RandomSampler(self.train), self.batch_size, drop_last=True)
        return DataLoader(self.train, sampler=sampler, batch_size=None)


class Surrogate(pl.LightningModule):
    def __init__(self, d_in=24, width=384, depth=5, lr=1e-3):
        super().__init__()
        self.lr = lr
        layers, d = [], d_in
        for _ in range(depth):
            layers += [nn.Linear(d, width), nn.SiLU()]
            d = width
        layers.append(nn.Linear(d, 3))
        self.net = nn.Sequential(*layers)
        self.loss = nn.SmoothL1Loss()

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = self.loss(self(x), y)
        if self.global_step % 25 == 0:
            print(f"epoch {self.current_epoch} step {self.global_step} loss {loss.item():.5f}", flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr, fused=True)


if __name__ == "__main__":
    pl.seed_everything(7)
    model = Surrogate().double()
    trainer = pl.Trainer(max_epochs=60, accelerator="cpu", logger=False, enable_checkpointing=False,
                         enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, WingData())
