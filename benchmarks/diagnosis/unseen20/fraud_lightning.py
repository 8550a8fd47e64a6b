"""Card-not-present fraud score. Reads the settled transactions from the warehouse extract (sqlite)."""
import argparse
import logging
import sqlite3

import numpy as np
import pandas as pd
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision

logger = logging.getLogger(__name__)

CATEGORICAL = {"mcc": 400, "country": 120, "issuer": 900, "channel": 6, "hour": 24}
NUMERIC = ["amount", "velocity_1h", "velocity_24h", "account_age", "avg_ticket", "distance_km"]


def write_extract(path: str, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({name: rng.zipf(1.3, rows) % size for name, size in CATEGORICAL.items()})
    frame["amount"] = rng.lognormal(3, 1.2, rows)
    frame["velocity_1h"] = rng.poisson(1.2, rows)
    frame["velocity_24h"] = frame["velocity_1h"] + rng.poisson(4, rows)
    frame["account_age"] = rng.exponential(600, rows)
    frame["avg_ticket"] = rng.lognormal(3, 0.8, rows)
    frame["distance_km"] = rng.exponential(40, rows)
    risk = (
        0.8 * np.log(frame["amount"] / frame["avg_ticket"]) + 0.5 * frame["velocity_1h"]
        + 0.004 * frame["distance_km"] - 0.001 * frame["account_age"]
        + rng.normal(0, 1, 400)[frame["mcc"]] + rng.normal(0, 1, 120)[frame["country"]]
    )
    frame["is_fraud"] = (rng.random(rows) < 1 / (1 + np.exp(4.5 - risk))).astype(int)
    with sqlite3.connect(path) as con:
        frame.to_sql("transactions", con, if_exists="replace", index=False)


class Transactions(Dataset):
    """Whole extract in memory; indexed with a list, returns a batch."""

    def __init__(self, frame: pd.DataFrame, mean: pd.Series, std: pd.Series) -> None:
        numeric = (np.log1p(frame[NUMERIC]) - mean) / std
        self.numeric = torch.tensor(numeric.to_numpy(), dtype=torch.float32)
        self.categorical = torch.tensor(frame[list(CATEGORICAL)].to_numpy(), dtype=torch.long)
        self.label = torch.tensor(frame["is_fraud"].to_numpy(), dtype=torch.long)

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, rows: list):
        rows = torch.tensor(rows)
        return self.numeric[rows], self.categorical[rows], self.label[rows]


def make_loader(ds: Transactions, batch_size: int, train: bool) -> DataLoader:
    order = RandomSampler(ds) if train else SequentialSampler(ds)
    return DataLoader(ds, sampler=BatchSampler(order, batch_size, drop_last=train), batch_size=None)


class FraudScore(pl.LightningModule):
    def __init__(self, hidden: int = 256, lr: float = 1e-3) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.embeddings = nn.ModuleList(nn.Embedding(n, min(24, 2 + n // 10)) for n in CATEGORICAL.values())
        width = len(NUMERIC) + sum(e.embedding_dim for e in self.embeddings)
        self.mlp = nn.Sequential(
            nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(hidden, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(hidden, 1),
        )
        self.train_auc = BinaryAUROC()
        self.val_auc = BinaryAUROC()
        self.val_ap = BinaryAveragePrecision()

    def forward(self, numeric, categorical):
        parts = [e(categorical[:, i]) for i, e in enumerate(self.embeddings)]
        return self.mlp(torch.cat([numeric, *parts], dim=1)).squeeze(1)

    def training_step(self, batch, batch_idx):
        numeric, categorical, label = batch
        logit = self(numeric, categorical)
        loss = F.binary_cross_entropy_with_logits(logit, label.float(), pos_weight=torch.tensor(5.0))
        self.train_auc.update(logit.detach().sigmoid(), label)
        self.log("train_loss", loss, prog_bar=True)
        self.log("train_auc", self.train_auc.compute(), prog_bar=True)
        return loss

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch} train_auc {self.train_auc.compute().item():.4f} "
              f"{ {k: round(v.item(), 4) for k, v in self.trainer.callback_metrics.items()} }", flush=True)
        self.train_auc.reset()

    def validation_step(self, batch, batch_idx):
        numeric, categorical, label = batch
        logit = self(numeric, categorical)
        self.val_auc.update(logit.sigmoid(), label)
        self.val_ap.update(logit.sigmoid(), label)
        self.log("val_auc", self.val_auc, on_epoch=True)
        self.log("val_ap", self.val_ap, on_epoch=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-4)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=280_000)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=150)
    args = parser.parse_args()
    pl.seed_everything(7)
    write_extract("warehouse.db", args.rows, seed=7)
    with sqlite3.connect("warehouse.db") as con:
        frame = pd.read_sql("select * from transactions", con)
    cut = int(0.9 * len(frame))
    logged = np.log1p(frame[NUMERIC].iloc[:cut])
    train = Transactions(frame.iloc[:cut], logged.mean(), logged.std())
    val = Transactions(frame.iloc[cut:], logged.mean(), logged.std())
    logger.info("train %d val %d", len(train), len(val))
    trainer = pl.Trainer(
        max_epochs=args.epochs, accelerator="cpu", devices=1, logger=False, gradient_clip_val=1.0,
        enable_progress_bar=False, enable_checkpointing=False, num_sanity_val_steps=0,
    )
    trainer.fit(FraudScore(), make_loader(train, args.batch_size, True), make_loader(val, 4096, False))


if __name__ == "__main__":
    main()
