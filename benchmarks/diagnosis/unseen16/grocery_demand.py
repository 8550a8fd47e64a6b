"""Forecast daily grocery sales per shop and article with an autoregressive recurrent network (in the style of DeepAR)."""
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics import MeanAbsoluteError

ROOT = Path(tempfile.gettempdir()) / "grocery_demand"
TABLE = ROOT / "sales.parquet"
N_SERIES, N_DAYS = 400, 730
HISTORY, HORIZON = 56, 14


def make_sales():
    if TABLE.exists():
        return
    ROOT.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(5)
    dates = pd.date_range("2022-01-01", periods=N_DAYS)
    frames = []
    for series in range(N_SERIES):
        level = rng.lognormal(2.5, 0.8)
        weekly = 1 + rng.uniform(0.1, 0.5) * np.sin(2 * np.pi * (dates.dayofweek + rng.uniform(0, 7)) / 7)
        yearly = 1 + rng.uniform(0, 0.4) * np.sin(2 * np.pi * (dates.dayofyear + rng.uniform(0, 365)) / 365)
        promo = rng.random(N_DAYS) < 0.06
        price = np.round(rng.uniform(0.5, 12) * np.where(promo, 0.8, 1.0), 2)
        mean = level * weekly * yearly * np.where(promo, 1.7, 1.0)
        sales = rng.negative_binomial(8, 8 / (8 + mean))
        frames.append(pd.DataFrame({"series": series, "date": dates, "price": price, "promo": promo, "sales": sales}))
    pd.concat(frames, ignore_index=True).to_parquet(TABLE)


class SalesWindows(Dataset):
    """Windows of HISTORY + HORIZON days, one series at a time, between two days of the calendar."""

    def __init__(self, sales, covariates, first_day, last_day, stride):
        self.sales = sales
        self.covariates = covariates
        starts = range(first_day, last_day - HISTORY - HORIZON, stride)
        self.windows = [(s, d) for s in range(len(sales)) for d in starts]

    def __len__(self):
        return len(self.windows)

    def __getitem__(self, index):
        series, start = self.windows[index]
        stop = start + HISTORY + HORIZON
        return {
            "series": series,
            "previous": self.sales[series, start:stop],
            "covariates": self.covariates[series, start + 1 : stop + 1],
            "target": self.sales[series, start + 1 : stop + 1],
        }


class SalesDataModule(pl.LightningDataModule):
    def __init__(self, batch_size=32):
        super().__init__()
        self.batch_size = batch_size

    def prepare_data(self):
        make_sales()

    def setup(self, stage=None):
        table = pd.read_parquet(TABLE).sort_values(["series", "date"])
        table["weekday_sin"] = np.sin(2 * np.pi * table["date"].dt.dayofweek / 7)
        table["weekday_cos"] = np.cos(2 * np.pi * table["date"].dt.dayofweek / 7)
        table["season"] = np.sin(2 * np.pi * table["date"].dt.dayofyear / 365)
        table["price"] = table["price"] / table.groupby("series")["price"].transform("mean")
        columns = ["price", "promo", "weekday_sin", "weekday_cos", "season"]
        sales = torch.tensor(table["sales"].to_numpy(np.float32)).view(N_SERIES, N_DAYS)
        covariates = torch.tensor(table[columns].to_numpy(np.float32)).view(N_SERIES, N_DAYS, len(columns))
        self.train_set = SalesWindows(sales, covariates, 0, N_DAYS - 160, stride=7)
        self.val_set = SalesWindows(sales, covariates, N_DAYS - 160, N_DAYS - 80, stride=7)
        self.test_set = SalesWindows(sales, covariates, N_DAYS - 80, N_DAYS - 1, stride=7)

    def train_dataloader(self):
        return DataLoader(self.train_set, self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, 256)

    def test_dataloader(self):
        return DataLoader(self.test_set, 256)


class DemandForecaster(pl.LightningModule):
    def __init__(self, n_covariates=5, embedding=16, hidden=64, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.embedding = nn.Embedding(N_SERIES, embedding)
        self.cell1 = nn.LSTMCell(1 + n_covariates + embedding, hidden)
        self.cell2 = nn.LSTMCell(hidden, hidden)
        self.mean = nn.Linear(hidden, 1)
        self.dispersion = nn.Linear(hidden, 1)
        self.val_mae = MeanAbsoluteError()
        self.test_mae = MeanAbsoluteError()

    def forward(self, batch, teacher_forcing=True):
        previous, covariates = batch["previous"], batch["covariates"]
        scale = 1 + previous[:, :HISTORY].mean(dim=1, keepdim=True)
        series = self.embedding(batch["series"])
        size, steps = previous.shape
        h1 = c1 = h2 = c2 = previous.new_zeros(size, self.hparams.hidden)
        means, dispersions = [], []
        for t in range(steps):
            value = previous[:, t : t + 1]
            if not teacher_forcing and t > HISTORY:
                value = means[-1]
            x = torch.cat([value / scale, covariates[:, t], series], dim=1)
            h1, c1 = self.cell1(x, (h1, c1))
            h2, c2 = self.cell2(h1, (h2, c2))
            means.append(scale * nn.functional.softplus(self.mean(h2)) + 1e-4)
            dispersions.append(nn.functional.softplus(self.dispersion(h2)) + 1e-4)
        return torch.cat(means, dim=1), torch.cat(dispersions, dim=1)

    def negative_log_likelihood(self, mean, dispersion, target):
        total = 1 / dispersion
        logits = torch.log(mean * dispersion)
        return -torch.distributions.NegativeBinomial(total, logits=logits).log_prob(target).mean()

    def training_step(self, batch, batch_idx):
        mean, dispersion = self(batch)
        loss = self.negative_log_likelihood(mean, dispersion, batch["target"])
        self.log("train_nll", loss, prog_bar=True, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        mean, dispersion = self(batch, teacher_forcing=False)
        mean, dispersion, target = (x[:, HISTORY:].flatten() for x in (mean, dispersion, batch["target"]))
        nll = self.negative_log_likelihood(mean, dispersion, target)
        self.val_mae(mean, target)
        self.log("val_nll", nll, prog_bar=True)
        self.log("val_mae", self.val_mae, prog_bar=True)

    def test_step(self, batch, batch_idx):
        mean, _ = self(batch, teacher_forcing=False)
        self.test_mae(mean[:, HISTORY:].flatten(), batch["target"][:, HISTORY:].flatten())
        self.log("test_mae", self.test_mae)

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "val_nll"}}


if __name__ == "__main__":
    pl.seed_everything(2024)
    trainer = pl.Trainer(
        max_epochs=30,
        accelerator="cpu",
        gradient_clip_val=10.0,
        logger=CSVLogger(ROOT / "logs"),
        callbacks=[
            ModelCheckpoint(monitor="val_mae"),
            EarlyStopping(monitor="val_nll", patience=8),
            LearningRateMonitor("epoch"),
        ],
    )
    data = SalesDataModule()
    model = DemandForecaster()
    trainer.fit(model, data)
    trainer.test(model, data)
