"""Graph network that forecasts the next six hours on a coarse global weather grid (zarr archive)."""
import tempfile
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn as nn
import zarr
from pytorch_lightning.callbacks import LearningRateMonitor, ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from torch.utils.data import DataLoader, Dataset
from torchmetrics import MeanMetric

ROOT = Path(tempfile.gettempdir()) / "weather_grids"
FIELDS = ["t2m", "z500", "u10", "v10", "msl"]
N_LAT, N_LON = 32, 64


def prepare(path, hours=1600, seed=2):
    rng = np.random.default_rng(seed)
    lat = np.linspace(-87, 87, N_LAT)
    lon = np.linspace(0, 360, N_LON, endpoint=False)
    la, lo = np.deg2rad(lat)[:, None], np.deg2rad(lon)[None, :]
    values = np.zeros((hours, len(FIELDS), N_LAT, N_LON), np.float32)
    t = np.arange(hours)[:, None, None]
    for k in range(len(FIELDS)):
        values[:, k] = np.cos(2 * la) * rng.uniform(0.5, 2)
        for _ in range(8):
            wave, speed = rng.integers(1, 7), rng.uniform(0.01, 0.12)
            envelope = np.cos(la) ** rng.integers(1, 5) * np.sin(rng.integers(1, 4) * la + rng.uniform(0, 6))
            values[:, k] += rng.uniform(0.2, 0.7) * envelope * np.cos(wave * lo - speed * t + rng.uniform(0, 6))
        values[:, k] += 0.05 * rng.standard_normal((hours, N_LAT, N_LON))
    group = zarr.open_group(str(path), mode="w")
    archive = group.create_array("values", shape=values.shape, chunks=(24,) + values.shape[1:], dtype="float32")
    archive[:] = values
    group.create_array("lat", shape=lat.shape, dtype="float64")[:] = lat
    group.create_array("lon", shape=lon.shape, dtype="float64")[:] = lon
    (ROOT / "done").touch()


class GridDataset(Dataset):
    """Pairs of (state now, state in six hours), one row per grid point."""

    def __init__(self, values, lead=6):
        self.values = values
        self.lead = lead

    def __len__(self):
        return len(self.values) - self.lead

    def __getitem__(self, i):
        now, later = self.values[i], self.values[i + self.lead]
        return now.flatten(1).T, later.flatten(1).T


class WeatherData(pl.LightningDataModule):
    def __init__(self, batch_size=4):
        super().__init__()
        self.batch_size = batch_size
        self.path = ROOT / "era.zarr"

    def prepare_data(self):
        ROOT.mkdir(parents=True, exist_ok=True)
        if not (ROOT / "done").exists():
            prepare(self.path)

    def setup(self, stage=None):
        group = zarr.open_group(str(self.path), mode="r")
        values = torch.from_numpy(group["values"][:])
        n = len(values)
        train, val, test = values[: int(0.85 * n)], values[int(0.85 * n): int(0.92 * n)], values[int(0.92 * n):]
        mean, std = train.mean(dim=(0, 2, 3), keepdim=True), train.std(dim=(0, 2, 3), keepdim=True)
        self.train_set, self.val_set, self.test_set = [GridDataset((v - mean) / std) for v in (train, val, test)]

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=self.batch_size)

    def test_dataloader(self):
        return DataLoader(self.test_set, batch_size=self.batch_size)


def great_circle(lat, lon):
    """Pairwise angular distance between points (haversine formula), in radians."""
    dlat = lat[:, None] - lat[None, :]
    dlon = lon[:, None] - lon[None, :]
    a = torch.sin(dlat / 2) ** 2 + torch.cos(lat)[:, None] * torch.cos(lat)[None, :] * torch.sin(dlon / 2) ** 2
    return 2 * torch.asin(a.clamp(0, 1).sqrt())


def nearest_neighbours(lat, lon, k):
    distance, index = great_circle(lat, lon).topk(k + 1, largest=False)
    return distance[:, 1:], index[:, 1:]


class MessageLayer(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * hidden + 1, hidden), nn.SiLU())
        self.update = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.norm = nn.LayerNorm(hidden)

    def forward(self, h, distance, index):
        neighbours = h[:, index]
        own = h.unsqueeze(2).expand_as(neighbours)
        d = distance[None, :, :, None].expand(h.shape[0], -1, -1, 1)
        messages = self.message(torch.cat([own, neighbours, d], dim=-1)).mean(dim=2)
        return self.norm(h + self.update(torch.cat([h, messages], dim=-1)))


class WeatherGraphNet(pl.LightningModule):
    def __init__(self, hidden=32, layers=2, neighbours=6, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        lat, lon = torch.meshgrid(
            torch.linspace(-87, 87, N_LAT), torch.arange(N_LON) * 360 / N_LON, indexing="ij"
        )
        self.register_buffer("lat", torch.deg2rad(lat.flatten()))
        self.register_buffer("lon", torch.deg2rad(lon.flatten()))
        self.encode = nn.Linear(len(FIELDS) + 3, hidden)
        self.layers = nn.ModuleList([MessageLayer(hidden) for _ in range(layers)])
        self.decode = nn.Linear(hidden, len(FIELDS))
        self.val_rmse = MeanMetric()
        self.test_rmse = MeanMetric()

    def forward(self, state):
        position = torch.stack([self.lat.sin(), self.lon.sin(), self.lon.cos()], dim=-1)
        h = self.encode(torch.cat([state, position.expand(state.shape[0], -1, -1)], dim=-1))
        distance, index = nearest_neighbours(self.lat, self.lon, self.hparams.neighbours)
        for layer in self.layers:
            h = layer(h, distance, index)
        return state + self.decode(h)

    def weighted_mse(self, prediction, target):
        weight = self.lat.cos() / self.lat.cos().mean()
        return (weight[None, :, None] * (prediction - target) ** 2).mean()

    def training_step(self, batch, batch_idx):
        now, later = batch
        loss = self.weighted_mse(self(now), later)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        now, later = batch
        self.val_rmse(self.weighted_mse(self(now), later).sqrt())
        self.log("val_rmse", self.val_rmse, prog_bar=True)

    def test_step(self, batch, batch_idx):
        now, later = batch
        self.test_rmse(self.weighted_mse(self(now), later).sqrt())
        self.log("test_rmse", self.test_rmse)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.95)
        return [optimizer], [scheduler]


if __name__ == "__main__":
    pl.seed_everything(40)
    data = WeatherData()
    model = WeatherGraphNet()
    trainer = pl.Trainer(
        max_epochs=30,
        accelerator="cpu",
        logger=CSVLogger(ROOT / "logs"),
        callbacks=[ModelCheckpoint(monitor="val_rmse"), LearningRateMonitor()],
    )
    trainer.fit(model, data)
    trainer.test(model, data)
