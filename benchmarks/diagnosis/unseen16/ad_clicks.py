"""Click prediction on an ad log (Parquet) with hashed categorical columns and a few numbers."""
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F

FOLDER = Path(tempfile.gettempdir()) / "ad_clicks_data"

CONFIG = {
    "columns": {"user": 300_000, "ad": 80_000, "site": 40_000, "device": 5_000, "campaign": 8_000,
                "region": 1_200, "hour": 24, "slot": 12},
    "numeric": ["price", "age_days", "recent_views", "recent_clicks", "position"],
    "rows": 600_000,
    "dim": 16,
    "hidden": [128, 64],
    "batch_size": 512,
    "lr": 1e-3,
    "epochs": 40,
    "log_every": 100,
    "val_every": 1000,
    "val_rows": 20_000,
    "seed": 11,
}


def build_log(cfg):
    path = FOLDER / "log.parquet"
    if path.exists():
        return path
    FOLDER.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(cfg["seed"])
    n = cfg["rows"]
    frame, score = {}, np.full(n, -2.0)
    for name, size in cfg["columns"].items():
        rank = np.minimum((rng.pareto(0.6, n) * size / 400).astype(np.int64), size - 1) if size > 100 \
            else rng.integers(0, size, n)
        ids = rng.permutation(size)[rank]
        score += rng.normal(0, 0.5, size)[ids]
        frame[name] = ids.astype(np.int32)
    for name in cfg["numeric"]:
        value = rng.gamma(2.0, 1.5, n).astype(np.float32)
        score += rng.normal(0, 0.2) * (value - 3)
        frame[name] = value
    frame["click"] = (rng.random(n) < 1 / (1 + np.exp(-score))).astype(np.int8)
    pd.DataFrame(frame).to_parquet(path)
    return path


class ClickTable:
    """The whole log as three tensors; batches are slices of a permutation."""

    def __init__(self, frame, cfg):
        self.cat = torch.from_numpy(frame[list(cfg["columns"])].to_numpy(np.int64, copy=True))
        num = np.log1p(frame[cfg["numeric"]].to_numpy(np.float32))
        self.num = torch.from_numpy((num - num.mean(0)) / num.std(0))
        self.y = torch.from_numpy(frame["click"].to_numpy(np.float32))

    def __len__(self):
        return len(self.y)

    def batches(self, size, shuffle=True):
        order = torch.randperm(len(self)) if shuffle else torch.arange(len(self))
        for idx in order.split(size):
            yield self.cat[idx], self.num[idx], self.y[idx]


class WideDeep(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(size, cfg["dim"]) for size in cfg["columns"].values()])
        for t in self.tables:
            nn.init.normal_(t.weight, std=0.05)
        width = cfg["dim"] * len(self.tables) + len(cfg["numeric"])
        layers = []
        for h in cfg["hidden"]:
            layers += [nn.Linear(width, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Dropout(0.1)]
            width = h
        self.deep = nn.Sequential(*layers, nn.Linear(width, 1))
        self.wide = nn.Linear(len(cfg["numeric"]), 1)

    def forward(self, cat, num):
        parts = [table(cat[:, i]) for i, table in enumerate(self.tables)]
        stack = torch.stack(parts, 1)
        total = stack.sum(1)
        second = 0.5 * (total.pow(2) - stack.pow(2).sum(1)).sum(1)
        deep = self.deep(torch.cat(parts + [num], 1)).squeeze(1)
        return deep + second + self.wide(num).squeeze(1)


class Meter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.total, self.count, self.start = 0.0, 0, time.time()

    def add(self, value):
        self.total += value
        self.count += 1

    def line(self):
        return f"loss {self.total / self.count:.4f}  {self.count / (time.time() - self.start):.1f} it/s"


def auc(score, label):
    order = score.argsort()
    rank = torch.empty_like(order, dtype=torch.float64)
    rank[order] = torch.arange(1, len(order) + 1, dtype=torch.float64)
    pos = label.sum().double()
    neg = len(label) - pos
    return ((rank[label > 0.5].sum() - pos * (pos + 1) / 2) / (pos * neg)).item()


class Engine:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg["seed"])
        frame = pd.read_parquet(build_log(cfg))
        self.train = ClickTable(frame.iloc[:-cfg["val_rows"]], cfg)
        self.val = ClickTable(frame.iloc[-cfg["val_rows"]:], cfg)
        self.model = WideDeep(cfg)
        self.optimizers = self.build_optimizers()
        self.meter = Meter()
        self.step, self.best = 0, 0.0

    def build_optimizers(self):
        return [torch.optim.Adam(self.model.parameters(), lr=self.cfg["lr"])]

    def update(self, cat, num, y):
        loss = F.binary_cross_entropy_with_logits(self.model(cat, num), y)
        for opt in self.optimizers:
            opt.zero_grad()
        loss.backward()
        for opt in self.optimizers:
            opt.step()
        self.step += 1
        return loss.item()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        out = torch.cat([self.model(c, n) for c, n, _ in self.val.batches(4096, shuffle=False)])
        self.model.train()
        return auc(out, self.val.y)

    def run(self):
        for epoch in range(self.cfg["epochs"]):
            for batch in self.train.batches(self.cfg["batch_size"]):
                self.meter.add(self.update(*batch))
                if self.step % self.cfg["log_every"] == 0:
                    print(f"[{epoch}] {self.step:6d} {self.meter.line()}", flush=True)
                    self.meter.reset()
                if self.step % self.cfg["val_every"] == 0:
                    score = self.evaluate()
                    print(f"[{epoch}] {self.step:6d} val AUC {score:.4f}", flush=True)
                    if score > self.best:
                        self.best = score
                        torch.save(self.model.state_dict(), FOLDER / "best.pt")
                    self.meter.reset()


if __name__ == "__main__":
    Engine(CONFIG).run()
