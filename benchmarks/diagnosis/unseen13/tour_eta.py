"""ETA model for last-mile tours, Lightning edition.

Input: the planned stops of a tour (position, time window, parcels, service type).
Output: arrival delay at each stop. The tours come from the dispatch archive; a tour is
re-planned on the fly (random depot, reversed, traffic shifted) so the network does not
learn the streets by heart.
"""
import csv
import math
import os
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")
HOME = Path(tempfile.gettempdir()) / "tour_eta"

STOPS = 48
HPARAMS = dict(
    tours=4000, batch_size=16, dim=144, depth=3, heads=4, services=8, lr=4e-4, ema=0.999, epochs=30, cpu_threads=1
)


def dispatch_archive(n):
    file = HOME / f"tours_{n}.npz"
    if not file.exists():
        HOME.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(20)
        centre = rng.uniform(-30, 30, (n, 1, 2))
        data = {
            "xy": (centre + rng.normal(scale=4, size=(n, STOPS, 2))).astype("float32"),
            "parcels": rng.poisson(2.0, (n, STOPS)).astype("float32") + 1,
            "service": rng.integers(0, HPARAMS["services"], (n, STOPS)),
            "start": rng.uniform(6, 11, n).astype("float32"),
        }
        part = HOME / f"part{os.getpid()}.npz"
        np.savez(part, **data)
        part.rename(file)
    return dict(np.load(file))


class TourDataset(Dataset):
    """Re-plans one archived tour per access."""

    def __init__(self, archive):
        self.archive = archive

    def __len__(self):
        return len(self.archive["start"])

    def __getitem__(self, i):
        rng = np.random.default_rng()
        xy = self.archive["xy"][i]
        order = self.replan(xy, int(rng.integers(STOPS)))
        if rng.random() < 0.5:
            order = order[::-1].copy()
        xy, parcels, service = xy[order], self.archive["parcels"][i][order], self.archive["service"][i][order]
        legs = np.linalg.norm(np.diff(xy, axis=0, prepend=xy[:1]), axis=1)
        planned = self.archive["start"][i] + np.cumsum(legs / 25 + parcels * 0.03)
        rush = np.exp(-((planned - 8.5) ** 2)) + np.exp(-((planned - 17.0) ** 2) / 2)
        late = np.cumsum(0.02 * legs * rush * rng.lognormal(0, 0.2, STOPS) + 0.004 * service)
        features = np.column_stack([xy / 30, legs, parcels, np.sin(planned * math.pi / 12), np.cos(planned * math.pi / 12)])
        return {
            "features": torch.from_numpy(features.astype(np.float32)),
            "service": torch.from_numpy(service),
            "delay": torch.from_numpy(late.astype(np.float32)),
        }

    @staticmethod
    def replan(xy, first):
        """Nearest-neighbour tour."""
        left = np.ones(len(xy), dtype=bool)
        order = [first]
        left[first] = False
        for _ in range(len(xy) - 1):
            d = ((xy - xy[order[-1]]) ** 2).sum(1)
            d[~left] = np.inf
            order.append(int(d.argmin()))
            left[order[-1]] = False
        return np.array(order)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d))
        return x + self.mlp(self.norm2(x))


class EtaModule(pl.LightningModule):
    def __init__(self, **hp):
        super().__init__()
        self.save_hyperparameters()
        self.embed = nn.Linear(6, hp["dim"])
        self.service = nn.Embedding(hp["services"], hp["dim"])
        self.place = nn.Parameter(torch.zeros(STOPS, hp["dim"]))
        self.blocks = nn.ModuleList(Block(hp["dim"], hp["heads"]) for _ in range(hp["depth"]))
        self.head = nn.Sequential(nn.LayerNorm(hp["dim"]), nn.Linear(hp["dim"], 1))

    def forward(self, batch):
        x = self.embed(batch["features"]) + self.service(batch["service"]) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(x).squeeze(-1)

    def training_step(self, batch, _):
        prediction = self(batch)
        loss = F.smooth_l1_loss(prediction, batch["delay"])
        with torch.no_grad():
            minutes = 60 * (prediction - batch["delay"]).abs().mean().item()
        self.log_dict({"loss": loss.item(), "mae_minutes": minutes}, prog_bar=False)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


class EmaCallback(pl.Callback):
    def __init__(self, decay):
        self.decay, self.shadow = decay, None

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if self.shadow is None:
            self.shadow = {k: v.detach().clone() for k, v in module.named_parameters()}
        for name, p in module.named_parameters():
            self.shadow[name].lerp_(p.detach(), 1 - self.decay)


class CsvCallback(pl.Callback):
    """One line per step, the dashboard tails this file."""

    def on_train_start(self, trainer, module):
        self.file = open("steps.csv", "w", newline="")
        self.writer = csv.writer(self.file)
        self.t0 = time.time()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        m = trainer.callback_metrics
        row = [trainer.global_step, f"{time.time() - self.t0:.2f}", f"{m['loss']:.5f}", f"{m['mae_minutes']:.3f}"]
        self.writer.writerow(row)
        self.file.flush()
        print("step {} t={} loss={} mae={}min".format(*row), flush=True)


def main():
    pl.seed_everything(3)
    loader = DataLoader(
        TourDataset(dispatch_archive(HPARAMS["tours"])),
        batch_size=HPARAMS["batch_size"], shuffle=True, drop_last=True,
        num_workers=1, persistent_workers=True, prefetch_factor=4,
    )
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=HPARAMS["epochs"], callbacks=[EmaCallback(HPARAMS["ema"]), CsvCallback()],
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(EtaModule(**HPARAMS), loader)


if __name__ == "__main__":
    main()
