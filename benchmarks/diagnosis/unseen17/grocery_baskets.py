"""Next-basket item prediction for an online grocery: session GRU over hashed product embeddings (Parquet logs)."""
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytorch_lightning as pl
import torch
import torch.nn as nn
import torch.nn.functional as F
from pytorch_lightning.callbacks import EarlyStopping
from pytorch_lightning.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanMetric

ROOT = Path(tempfile.gettempdir()) / "grocery_baskets"
N_ITEMS = 120_000
HISTORY = 12
DEPARTMENTS = 300


def prepare(path, sessions=60000, seed=9):
    rng = np.random.default_rng(seed)
    popularity = 1 / np.arange(1, N_ITEMS // DEPARTMENTS + 1) ** 0.8
    popularity /= popularity.sum()
    lengths = rng.integers(4, HISTORY + 2, sessions)
    frames = []
    for part in range(4):
        session_ids = np.arange(part, sessions, 4)
        rows = lengths[session_ids]
        session = np.repeat(session_ids, rows)
        department = np.repeat(rng.integers(0, DEPARTMENTS, (len(rows), 2)), rows, axis=0)
        pick = (rng.random(len(session)) < 0.3).astype(int)
        rank = rng.choice(len(popularity), len(session), p=popularity)
        item = department[np.arange(len(session)), pick] + DEPARTMENTS * rank
        frames.append(pd.DataFrame({"session": session, "item": item, "hour": rng.integers(0, 24, len(session))}))
    log = pd.concat(frames).sort_values("session", kind="stable")
    tmp = path.with_suffix(".part")
    log.to_parquet(tmp)
    tmp.rename(path)


class BasketData(pl.LightningDataModule):
    def __init__(self, batch_size=256):
        super().__init__()
        self.batch_size = batch_size
        self.path = ROOT / "events.parquet"

    def prepare_data(self):
        ROOT.mkdir(parents=True, exist_ok=True)
        if not self.path.exists():
            prepare(self.path)

    def setup(self, stage=None):
        log = pd.read_parquet(self.path)
        log["position"] = log.groupby("session").cumcount(ascending=False)
        n = int(log["session"].max()) + 1
        history = np.zeros((n, HISTORY), np.int64)
        target = np.zeros(n, np.int64)
        last = log[log.position == 0]
        target[last.session] = last.item + 1
        earlier = log[(log.position > 0) & (log.position <= HISTORY)]
        history[earlier.session, HISTORY - earlier.position] = earlier.item + 1
        history, target = torch.from_numpy(history), torch.from_numpy(target)
        n_val = n // 20
        self.train_set = TensorDataset(history[2 * n_val:], target[2 * n_val:])
        self.val_set = TensorDataset(history[:n_val], target[:n_val])
        self.test_set = TensorDataset(history[n_val:2 * n_val], target[n_val:2 * n_val])

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=self.batch_size)

    def test_dataloader(self):
        return DataLoader(self.test_set, batch_size=self.batch_size)


class SessionRecommender(pl.LightningModule):
    def __init__(self, dim=64, negatives=512, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.items = nn.Embedding(N_ITEMS + 1, dim, padding_idx=0)
        nn.init.normal_(self.items.weight, std=0.05)
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.project = nn.Linear(dim, dim)
        self.val_mrr = MeanMetric()
        self.val_hit = MeanMetric()
        self.test_mrr = MeanMetric()

    def forward(self, history):
        states, _ = self.gru(self.items(history))
        return self.project(states[:, -1])

    def training_step(self, batch, batch_idx):
        history, target = batch
        user = self(history)
        negatives = torch.randint(1, N_ITEMS + 1, (self.hparams.negatives,), device=self.device)
        positive = (user * self.items(target)).sum(dim=1, keepdim=True)
        others = user @ self.items(negatives).T
        logits = torch.cat([positive, others], dim=1)
        loss = F.cross_entropy(logits, torch.zeros(len(target), dtype=torch.long, device=self.device))
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def rank(self, batch):
        """Rank of the bought item among a thousand random candidates."""
        history, target = batch
        user = self(history)
        candidates = torch.randint(1, N_ITEMS + 1, (1000,), device=self.device)
        scores = user @ self.items(candidates).T
        bought = (user * self.items(target)).sum(dim=1, keepdim=True)
        return (scores > bought).sum(dim=1) + 1

    def validation_step(self, batch, batch_idx):
        rank = self.rank(batch).float()
        self.val_mrr(1 / rank)
        self.val_hit((rank <= 10).float())
        self.log("val_mrr", self.val_mrr, prog_bar=True)
        self.log("val_hit10", self.val_hit, prog_bar=True)

    def test_step(self, batch, batch_idx):
        self.test_mrr(1 / self.rank(batch).float())
        self.log("test_mrr", self.test_mrr)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


if __name__ == "__main__":
    pl.seed_everything(3)
    data = BasketData()
    model = SessionRecommender()
    trainer = pl.Trainer(
        max_epochs=40,
        accelerator="cpu",
        logger=CSVLogger(ROOT / "logs"),
        callbacks=[EarlyStopping("val_mrr", mode="max", patience=40)],
    )
    trainer.fit(model, data)
    trainer.test(model, data)
