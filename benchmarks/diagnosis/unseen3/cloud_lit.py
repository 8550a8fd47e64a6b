"""PointNet-style classification of primitive shapes, Lightning."""
import argparse
import pathlib
import tempfile
import time

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

SHAPES = ["sphere", "cube", "cylinder", "torus"]


def sample_shape(kind, n, rng):
    if kind == "sphere":
        p = rng.normal(size=(n, 3))
        p /= np.linalg.norm(p, axis=1, keepdims=True)
    elif kind == "cube":
        p = rng.uniform(-1, 1, (n, 3))
        p[np.arange(n), rng.integers(0, 3, n)] = rng.choice([-1, 1], n)
    elif kind == "cylinder":
        a = rng.uniform(0, 2 * np.pi, n)
        p = np.stack([np.cos(a), np.sin(a), rng.uniform(-1, 1, n)], 1)
    else:
        a, b = rng.uniform(0, 2 * np.pi, (2, n))
        p = np.stack([(1 + 0.4 * np.cos(b)) * np.cos(a), (1 + 0.4 * np.cos(b)) * np.sin(a), 0.4 * np.sin(b)], 1)
    q, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    return (p * rng.uniform(0.5, 1.5, 3)) @ q + rng.normal(scale=0.05, size=(n, 3))


class CloudData(pl.LightningDataModule):
    def __init__(self, path, n_points=128, batch_size=16):
        super().__init__()
        self.path, self.n_points, self.batch_size = pathlib.Path(path), n_points, batch_size

    def prepare_data(self):
        if self.path.exists():
            return
        rng = np.random.default_rng(5)
        y = rng.integers(0, len(SHAPES), 3000)
        x = np.stack([sample_shape(SHAPES[k], self.n_points, rng) for k in y]).astype(np.float32)
        torch.save((torch.from_numpy(x), torch.from_numpy(y)), self.path)

    def setup(self, stage):
        x, y = torch.load(self.path)
        self.train = TensorDataset(x[:2400], y[:2400])
        self.val = TensorDataset(x[2400:], y[2400:])

    def train_dataloader(self):
        return DataLoader(self.train, self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val, self.batch_size)


class PointNet(pl.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.lr = lr
        self.point = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 128))
        self.head = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, len(SHAPES)))

    def forward(self, x):
        return self.head(self.point(x).amax(1))

    def training_step(self, batch, _):
        x, y = batch
        return F.cross_entropy(self(x + 0.01 * torch.randn_like(x)), y)

    def validation_step(self, batch, _):
        x, y = batch
        logits = self(x)
        self.log("val_loss", F.cross_entropy(logits, y))
        self.log("val_acc", (logits.argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


class Progress(pl.Callback):
    def on_train_start(self, trainer, module):
        self.start = time.time()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        n = trainer.global_step
        if n % 25 == 0:
            acc = float(trainer.callback_metrics.get("val_acc", 0))
            print(f"epoch {trainer.current_epoch} step {n} loss {float(outputs['loss']):.3f} val_acc {acc:.3f} "
                  f"{n * len(batch[0]) / (time.time() - self.start):.0f} clouds/s", flush=True)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", default=str(pathlib.Path(tempfile.gettempdir()) / "clouds.pt"))
    ap.add_argument("--epochs", type=int, default=400)
    opts = ap.parse_args()
    pl.seed_everything(0)
    trainer = pl.Trainer(max_epochs=opts.epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
                         enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
                         val_check_interval=5, callbacks=[Progress()])
    trainer.fit(PointNet(), CloudData(opts.data))
