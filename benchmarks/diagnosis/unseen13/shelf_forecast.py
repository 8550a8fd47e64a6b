"""Weekly demand forecast for the replenishment team.

Learns next-week sales per (store, article) from the last N weeks plus static
attributes. Runs nightly, so everything is configured in ForecastConfig.
"""
import logging
import os
import random
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
log = logging.getLogger("shelf_forecast")


@dataclass
class ForecastConfig:
    work_dir: Path = Path(tempfile.gettempdir()) / "shelf_forecast"
    n_stores: int = 25
    n_articles: int = 60
    n_weeks: int = 120
    window: int = 26
    batch_size: int = 32
    epochs: int = 6
    lr: float = 2e-3
    hidden: int = 64
    seed: int = 11
    threads: int = 1  # the scheduler gives us one core
    signal_columns: List[str] = field(default_factory=lambda: ["units", "price", "promo", "stock"])


class SalesRepository:
    """Access to the sales history. Production reads the DWH export, here we simulate one."""

    def __init__(self, cfg: ForecastConfig):
        self.cfg = cfg
        self.path = cfg.work_dir / "sales.parquet"

    def load(self) -> pd.DataFrame:
        if not self.path.exists():
            self._simulate()
        frame = pd.read_parquet(self.path)
        log.info("loaded %d rows of history", len(frame))
        return frame

    def _simulate(self):
        cfg = self.cfg
        rng = np.random.default_rng(cfg.seed)
        idx = pd.MultiIndex.from_product(
            [range(cfg.n_stores), range(cfg.n_articles), range(cfg.n_weeks)], names=["store", "article", "week"]
        )
        df = idx.to_frame(index=False)
        base = rng.gamma(2.0, 8.0, size=(cfg.n_stores, cfg.n_articles))
        season = 1 + 0.4 * np.sin(2 * np.pi * df["week"] / 52)
        df["promo"] = (rng.random(len(df)) < 0.08).astype("float32")
        df["price"] = (2 + df["article"] % 17 * (1 - 0.2 * df["promo"])).astype("float32")
        level = base[df["store"], df["article"]] * season * (1 + 0.8 * df["promo"])
        df["units"] = rng.poisson(level).astype("float32")
        df["stock"] = np.maximum(0, df["units"] + rng.integers(0, 30, len(df))).astype("float32")
        cfg.work_dir.mkdir(parents=True, exist_ok=True)
        tmp = self.path.with_suffix(f".{os.getpid()}")
        df.to_parquet(tmp)
        tmp.rename(self.path)


class DemandWindows(Dataset):
    """One sample = history window of one article in one store, target = units of the following week."""

    def __init__(self, history: pd.DataFrame, cfg: ForecastConfig, last_week: int):
        self.cfg = cfg
        self.history = history.copy()
        scale = self.history[cfg.signal_columns].mean()
        self.history[cfg.signal_columns] = self.history[cfg.signal_columns] / scale
        self.keys = [
            (s, a, w)
            for s in range(cfg.n_stores)
            for a in range(cfg.n_articles)
            for w in range(cfg.window, last_week)
        ]

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, i) -> Dict[str, torch.Tensor]:
        store, article, week = self.keys[i]
        h = self.history
        series = h[(h["store"] == store) & (h["article"] == article)]
        past = series[(series["week"] >= week - self.cfg.window) & (series["week"] < week)]
        target = series[series["week"] == week]["units"].iloc[0]
        return {
            "store": torch.tensor(store),
            "article": torch.tensor(article),
            "signals": torch.from_numpy(past[self.cfg.signal_columns].to_numpy(dtype="float32")),
            "target": torch.tensor(float(target)),
        }


class DemandNet(nn.Module):
    def __init__(self, cfg: ForecastConfig):
        super().__init__()
        self.store = nn.Embedding(cfg.n_stores, 8)
        self.article = nn.Embedding(cfg.n_articles, 16)
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(cfg.window * len(cfg.signal_columns), cfg.hidden), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(cfg.hidden + 24, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, batch):
        x = torch.cat([self.encoder(batch["signals"]), self.store(batch["store"]), self.article(batch["article"])], dim=1)
        return nn.functional.softplus(self.head(x)).squeeze(1)


class Callback:
    def on_step(self, trainer, loss): ...
    def on_epoch_end(self, trainer): ...


class ProgressCallback(Callback):
    def __init__(self, every=50):
        self.every, self.losses = every, []

    def on_step(self, trainer, loss):
        self.losses.append(loss)
        if trainer.step % self.every == 0:
            log.info("step %d  poisson nll %.4f", trainer.step, np.mean(self.losses[-self.every:]))


class Trainer:
    def __init__(self, cfg, model, callbacks):
        self.cfg, self.model, self.callbacks = cfg, model, callbacks
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
        self.criterion = nn.PoissonNLLLoss(log_input=False)
        self.step = 0

    def fit(self, loader):
        for epoch in range(self.cfg.epochs):
            self.model.train()
            for batch in loader:
                loss = self.criterion(self.model(batch), batch["target"])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.step += 1
                for cb in self.callbacks:
                    cb.on_step(self, loss.item())
            for cb in self.callbacks:
                cb.on_epoch_end(self)


def main():
    cfg = ForecastConfig()
    random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    history = SalesRepository(cfg).load()
    train_set = DemandWindows(history, cfg, last_week=cfg.n_weeks)
    loader = DataLoader(train_set, batch_size=cfg.batch_size, shuffle=True, drop_last=True)
    log.info("%d windows, %d batches per epoch", len(train_set), len(loader))
    Trainer(cfg, DemandNet(cfg), [ProgressCallback()]).fit(loader)


if __name__ == "__main__":
    main()
