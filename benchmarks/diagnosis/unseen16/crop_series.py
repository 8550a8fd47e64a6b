"""Classify crop types from Sentinel-2 pixel time series with a small temporal transformer."""
import math
import tempfile
from pathlib import Path

import h5py
import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassCohenKappa

ROOT = Path(tempfile.gettempdir()) / "crop_series"
CUBE = ROOT / "tile_32TMT_2024.h5"
N_DATES, N_BANDS, SIZE = 36, 10, 256
CROPS = ["wheat", "maize", "rapeseed", "sugar beet", "grassland", "potato"]


def make_cube():
    """A season of reflectances for one tile: fields are blocks of pixels with the phenology of their crop."""
    if CUBE.exists():
        return
    ROOT.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(3)
    days = np.sort(rng.choice(np.arange(30, 330), N_DATES, replace=False))
    fields = rng.integers(0, len(CROPS), (SIZE // 16, SIZE // 16))
    labels = np.kron(fields, np.ones((16, 16), dtype=np.int64))
    peak = np.array([150, 215, 125, 230, 180, 195])[labels] + rng.normal(0, 8, labels.shape)
    width = np.array([35, 38, 30, 55, 80, 30])[labels]
    soil = rng.uniform(0.05, 0.3, N_BANDS)
    leaf = rng.uniform(0.02, 0.5, N_BANDS)
    with h5py.File(CUBE, "w") as f:
        f.create_dataset("labels", data=labels.astype(np.uint8))
        f.create_dataset("days", data=days)
        cube = f.create_dataset(
            "reflectance", (N_DATES, N_BANDS, SIZE, SIZE), dtype="uint16", chunks=(1, N_BANDS, 64, 64), compression="gzip"
        )
        for i, day in enumerate(days):
            green = np.exp(-(((day - peak) / width) ** 2))
            image = soil[:, None, None] * (1 - green) + leaf[:, None, None] * green
            cloud = rng.random((SIZE // 32, SIZE // 32)) < 0.15
            cloud = np.kron(cloud, np.ones((32, 32)))
            image = image * (1 - cloud) + 0.8 * cloud + rng.normal(0, 0.02, image.shape)
            cube[i] = np.clip(image * 10000, 0, 65535).astype(np.uint16)


class FieldPatchDataset(Dataset):
    """One item is a 16 x 16 pixel window: its full time series and the crop of every pixel."""

    def __init__(self, path, window=16):
        self.window = window
        self.file = h5py.File(path, "r")
        self.reflectance = self.file["reflectance"]
        self.labels = self.file["labels"]
        self.corners = [(y, x) for y in range(0, SIZE - window + 1, 8) for x in range(0, SIZE - window + 1, 8)]

    def __len__(self):
        return len(self.corners)

    def __getitem__(self, index):
        y, x = self.corners[index]
        w = self.window
        series = self.reflectance[:, :, y : y + w, x : x + w].astype(np.float32) / 10000
        series = torch.from_numpy(series).permute(2, 3, 0, 1).reshape(w * w, N_DATES, N_BANDS)
        label = torch.from_numpy(self.labels[y : y + w, x : x + w].astype(np.int64)).flatten()
        keep = torch.randperm(w * w)[:16]
        return series[keep], label[keep]


class CropDataModule(pl.LightningDataModule):
    def __init__(self, batch_size=4):
        super().__init__()
        self.batch_size = batch_size

    def prepare_data(self):
        make_cube()

    def setup(self, stage=None):
        full = FieldPatchDataset(CUBE)
        parts = random_split(full, [0.85, 0.1, 0.05], generator=torch.Generator().manual_seed(0))
        self.train_set, self.val_set, self.test_set = parts

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=self.batch_size)

    def test_dataloader(self):
        return DataLoader(self.test_set, batch_size=self.batch_size)


class TemporalTransformer(pl.LightningModule):
    def __init__(self, dim=32, heads=4, depth=2, lr=5e-4):
        super().__init__()
        self.save_hyperparameters()
        self.embed = nn.Linear(N_BANDS, dim)
        position = torch.arange(N_DATES).unsqueeze(1)
        div = torch.exp(torch.arange(0, dim, 2) * (-math.log(1000.0) / dim))
        table = torch.zeros(N_DATES, dim)
        table[:, 0::2] = torch.sin(position * div)
        table[:, 1::2] = torch.cos(position * div)
        self.register_buffer("position", table)
        layer = nn.TransformerEncoderLayer(dim, heads, dim * 2, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, len(CROPS)))
        metrics = MetricCollection({"acc": MulticlassAccuracy(len(CROPS)), "kappa": MulticlassCohenKappa(len(CROPS))})
        self.train_metrics = metrics.clone(prefix="train_")
        self.val_metrics = metrics.clone(prefix="val_")
        self.test_metrics = metrics.clone(prefix="test_")

    def forward(self, series):
        hidden = self.encoder(self.embed(series) + self.position)
        return self.head(hidden.mean(dim=1))

    def shared_step(self, batch, stage, metrics):
        series, label = batch
        logits = self(series.flatten(0, 1))
        label = label.flatten()
        loss = F.cross_entropy(logits, label)
        metrics.update(logits, label)
        self.log(f"{stage}_loss", loss, prog_bar=True)
        self.log_dict(metrics, on_step=False, on_epoch=True)
        return loss

    def training_step(self, batch, batch_idx):
        return self.shared_step(batch, "train", self.train_metrics)

    def validation_step(self, batch, batch_idx):
        self.shared_step(batch, "val", self.val_metrics)

    def test_step(self, batch, batch_idx):
        self.shared_step(batch, "test", self.test_metrics)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "val_loss"}}


def main():
    pl.seed_everything(42)
    data = CropDataModule()
    model = TemporalTransformer()
    trainer = pl.Trainer(
        max_epochs=40,
        accelerator="cpu",
        logger=CSVLogger(ROOT / "logs", name="transformer"),
        callbacks=[
            ModelCheckpoint(monitor="val_kappa", mode="max"),
            EarlyStopping(monitor="val_loss", patience=15),
            LearningRateMonitor(),
        ],
        gradient_clip_val=1.0,
        log_every_n_steps=10,
    )
    trainer.fit(model, data)
    trainer.test(model, data)


if __name__ == "__main__":
    main()
