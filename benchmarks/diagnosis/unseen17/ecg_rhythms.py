"""Rhythm classification on 12-lead ECG recordings (10 s at 100 Hz, stored in one HDF5 file)."""
import tempfile
from pathlib import Path

import h5py
import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn as nn
import torch.nn.functional as F
from pytorch_lightning.callbacks import LearningRateMonitor, ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

ROOT = Path(tempfile.gettempdir()) / "ecg_rhythms"
RHYTHMS = ["sinus", "tachycardia", "bradycardia", "fibrillation", "bigeminy"]
LEADS, SAMPLES, RATE = 12, 1000, 100


def beat_times(rhythm, rng):
    mean = {"sinus": 0.85, "tachycardia": 0.48, "bradycardia": 1.3, "fibrillation": 0.7, "bigeminy": 0.8}[rhythm]
    times, t, i = [], rng.uniform(0, mean), 0
    while t < SAMPLES / RATE:
        times.append(t)
        gap = mean * rng.normal(1, 0.25 if rhythm == "fibrillation" else 0.03)
        if rhythm == "bigeminy":
            gap *= 0.6 if i % 2 == 0 else 1.4
        t += max(gap, 0.25)
        i += 1
    return np.array(times)


def make_record(rhythm, rng):
    axis = np.arange(SAMPLES) / RATE
    d = axis[None, :] - beat_times(rhythm, rng)[:, None]
    qrs = np.exp(-((d / 0.02) ** 2)).sum(0) - 0.3 * np.exp(-(((d - 0.04) / 0.02) ** 2)).sum(0)
    twave = 0.3 * np.exp(-(((d - 0.25) / 0.06) ** 2)).sum(0)
    pwave = 0.15 * np.exp(-(((d + 0.16) / 0.03) ** 2)).sum(0)
    if rhythm == "fibrillation":
        pwave = 0.08 * np.sin(2 * np.pi * rng.uniform(4, 8) * axis)
    gains = rng.normal(0.8, 0.4, (LEADS, 3))
    signal = gains[:, :1] * qrs + gains[:, 1:2] * twave + gains[:, 2:] * pwave
    drift = rng.normal(0, 0.2, (LEADS, 1)) * np.sin(2 * np.pi * 0.2 * axis + rng.uniform(0, 6))
    return ((signal + drift + rng.normal(0, 0.05, signal.shape)) * 1000).astype(np.int16)


def prepare(path, count=3000, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(RHYTHMS), count)
    records = np.stack([make_record(RHYTHMS[k], rng) for k in labels])
    tmp = path.with_suffix(".part")
    with h5py.File(tmp, "w") as f:
        f.create_dataset("signals", data=records, compression="gzip", compression_opts=4)
        f.create_dataset("labels", data=labels)
        f.attrs["rate"] = RATE
    tmp.rename(path)


class ECGDataset(Dataset):
    def __init__(self, path, indices, augment=False):
        self.file = h5py.File(path, "r")
        self.signals = self.file["signals"]
        self.labels = self.file["labels"][:]
        self.indices = indices
        self.augment = augment

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, i):
        k = self.indices[i]
        x = torch.from_numpy(self.signals[k].astype(np.float32)) / 1000
        x = (x - x.mean(dim=1, keepdim=True)) / (x.std(dim=1, keepdim=True) + 1e-6)
        if self.augment:
            x = torch.roll(x, int(torch.randint(0, SAMPLES, (1,))), dims=1)
            x = x * (1 + 0.1 * torch.randn(LEADS, 1))
        return x, int(self.labels[k])


class ECGData(pl.LightningDataModule):
    def __init__(self, batch_size=16):
        super().__init__()
        self.batch_size = batch_size
        self.path = ROOT / "records.h5"

    def prepare_data(self):
        ROOT.mkdir(parents=True, exist_ok=True)
        if not self.path.exists():
            prepare(self.path)

    def setup(self, stage=None):
        with h5py.File(self.path, "r") as f:
            count = len(f["labels"])
        order = np.random.default_rng(1).permutation(count)
        n_val = count // 10
        self.val_set = ECGDataset(self.path, order[:n_val])
        self.test_set = ECGDataset(self.path, order[n_val:2 * n_val])
        self.train_set = ECGDataset(self.path, order[2 * n_val:], augment=True)

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=self.batch_size)

    def test_dataloader(self):
        return DataLoader(self.test_set, batch_size=self.batch_size)


class Block(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv1 = nn.Conv1d(c_in, c_out, 7, stride=stride, padding=3, bias=False)
        self.bn1 = nn.BatchNorm1d(c_out)
        self.conv2 = nn.Conv1d(c_out, c_out, 7, padding=3, bias=False)
        self.bn2 = nn.BatchNorm1d(c_out)
        self.skip = nn.Conv1d(c_in, c_out, 1, stride=stride)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(h)) + self.skip(x))


class RhythmNet(pl.LightningModule):
    def __init__(self, width=32, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Conv1d(LEADS, width, 15, stride=2, padding=7),
            Block(width, width, 2),
            Block(width, 2 * width, 2),
            Block(2 * width, 4 * width, 2),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(4 * width, len(RHYTHMS)),
        )
        self.train_acc = MulticlassAccuracy(len(RHYTHMS))
        self.val_f1 = MulticlassF1Score(len(RHYTHMS))
        self.test_f1 = MulticlassF1Score(len(RHYTHMS))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y)
        self.train_acc(logits, y)
        self.log("train_loss", loss, prog_bar=True)
        self.log("train_acc", self.train_acc, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.val_f1(logits, y)
        self.log("val_loss", F.cross_entropy(logits, y), prog_bar=True)
        self.log("val_f1", self.val_f1, prog_bar=True)

    def test_step(self, batch, batch_idx):
        x, y = batch
        self.test_f1(self(x), y)
        self.log("test_f1", self.test_f1)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-2)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=self.trainer.max_epochs)
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


if __name__ == "__main__":
    pl.seed_everything(7)
    data = ECGData()
    model = RhythmNet()
    trainer = pl.Trainer(
        max_epochs=60,
        accelerator="cpu",
        logger=CSVLogger(ROOT / "logs"),
        callbacks=[ModelCheckpoint(monitor="val_f1", mode="max"), LearningRateMonitor()],
    )
    trainer.fit(model, data)
    trainer.test(model, data)
