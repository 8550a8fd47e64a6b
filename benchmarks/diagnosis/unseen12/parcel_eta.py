#!/usr/bin/env python
"""Parcel ETA service - offline training job.

Predicts the transit time (hours) of a shipment from hashed categorical fields
and a handful of numeric features.  Nightly retrain; the artefact is picked up
by the scoring service.
"""
from __future__ import annotations

import dataclasses
import json
import logging
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

logger = logging.getLogger("parcel_eta")


@dataclass
class FieldSpec:
    name: str
    buckets: int


@dataclass
class TrainConfig:
    fields: list[FieldSpec] = field(default_factory=lambda: [
        FieldSpec("origin_postcode", 60_000),
        FieldSpec("dest_postcode", 90_000),
        FieldSpec("merchant", 40_000),
        FieldSpec("lane", 120_000),
        FieldSpec("carrier_service", 400),
        FieldSpec("weekday_hour", 168),
        FieldSpec("depot", 1_500),
    ])
    dim: int = 32
    hidden: tuple[int, ...] = (256, 128)
    dropout: float = 0.05
    batch_size: int = 1024
    lr: float = 0.02
    epochs: int = 20
    n_rows: int = 400_000
    log_every: int = 50
    seed: int = 17
    workdir: Path = Path(tempfile.gettempdir()) / "parcel_eta"


def build_snapshot(cfg: TrainConfig, path: Path) -> None:
    """Synthesises a warehouse extract.  Popularity follows a Zipf-like law."""
    rng = np.random.default_rng(cfg.seed)
    cols, effect = [], np.zeros(cfg.n_rows)
    for spec in cfg.fields:
        u = rng.random(cfg.n_rows)
        idx = np.minimum((spec.buckets ** u - 1).astype(np.int64) * 7919 % spec.buckets,
                         spec.buckets - 1)
        table = rng.normal(0, 3.0, spec.buckets)
        effect += table[idx]
        cols.append(idx)
    cat = np.stack(cols, 1)
    num = rng.normal(0, 1, (cfg.n_rows, 6)).astype(np.float32)
    hours = 40 + effect + 4 * num[:, 0] - 2 * num[:, 1] * (num[:, 2] > 0)
    hours += rng.gamma(2.0, 2.0, cfg.n_rows)
    np.savez(path, cat=cat.astype(np.int32), num=num, hours=hours.astype(np.float32))


class ShipmentTable:
    """In-memory snapshot with whole-batch access."""

    def __init__(self, path: Path, holdout: float = 0.05):
        z = np.load(path)
        self.cat = torch.from_numpy(z["cat"].astype(np.int64))
        self.num = torch.from_numpy(z["num"])
        hours = torch.from_numpy(z["hours"])
        self.mean, self.std = hours.mean().item(), hours.std().item()
        self.target = (hours - self.mean) / self.std
        self.n_train = int(len(hours) * (1 - holdout))

    def batches(self, size: int, generator: torch.Generator):
        order = torch.randperm(self.n_train, generator=generator)
        for idx in order.split(size):
            if len(idx) == size:
                yield self.cat[idx], self.num[idx], self.target[idx]

    def holdout(self, size: int = 4096):
        for s in range(self.n_train, len(self.target), size):
            yield self.cat[s:s + size], self.num[s:s + size], self.target[s:s + size]


class FieldEmbedding(nn.Module):
    """One table for all categorical fields, addressed through per-field offsets."""

    def __init__(self, fields: list[FieldSpec], dim: int):
        super().__init__()
        sizes = torch.tensor([f.buckets for f in fields])
        self.register_buffer("offset", torch.cumsum(sizes, 0) - sizes)
        self.table = nn.Embedding(int(sizes.sum()), dim)
        nn.init.normal_(self.table.weight, std=0.01)

    def forward(self, cat: Tensor) -> Tensor:
        return self.table(cat + self.offset).flatten(1)


class EtaModel(nn.Module):
    def __init__(self, cfg: TrainConfig, n_num: int):
        super().__init__()
        self.embedding = FieldEmbedding(cfg.fields, cfg.dim)
        layers: list[nn.Module] = []
        width = cfg.dim * len(cfg.fields) + n_num
        for h in cfg.hidden:
            layers += [nn.Linear(width, h), nn.LayerNorm(h), nn.ReLU(), nn.Dropout(cfg.dropout)]
            width = h
        self.tower = nn.Sequential(*layers)
        self.mu = nn.Linear(width, 1)
        self.log_b = nn.Linear(width, 1)

    def forward(self, cat: Tensor, num: Tensor) -> tuple[Tensor, Tensor]:
        h = self.tower(torch.cat([self.embedding(cat), num], dim=1))
        return self.mu(h).squeeze(1), self.log_b(h).squeeze(1).clamp(-5, 3)


def laplace_nll(mu: Tensor, log_b: Tensor, y: Tensor) -> Tensor:
    return (log_b + (y - mu).abs() * torch.exp(-log_b)).mean()


class Trainer:
    def __init__(self, cfg: TrainConfig, table: ShipmentTable):
        self.cfg, self.table = cfg, table
        self.model = EtaModel(cfg, table.num.size(1))
        self.optimizer = torch.optim.Adagrad(self.model.parameters(), lr=cfg.lr)
        self.generator = torch.Generator().manual_seed(cfg.seed)
        self.step = 0

    def train_epoch(self, epoch: int) -> None:
        self.model.train()
        acc, since = torch.zeros(()), time.monotonic()
        for cat, num, y in self.table.batches(self.cfg.batch_size, self.generator):
            self.optimizer.zero_grad()
            loss = laplace_nll(*self.model(cat, num), y)
            loss.backward()
            self.optimizer.step()
            acc += loss.detach()
            self.step += 1
            if self.step % self.cfg.log_every == 0:
                rate = self.cfg.log_every * self.cfg.batch_size / (time.monotonic() - since)
                logger.info("epoch %d step %d nll %.4f (%.0f shipments/s)", epoch, self.step,
                            acc.item() / self.cfg.log_every, rate)
                acc.zero_()
                since = time.monotonic()

    @torch.inference_mode()
    def evaluate(self) -> float:
        self.model.eval()
        err = n = 0.0
        for cat, num, y in self.table.holdout():
            mu, _ = self.model(cat, num)
            err += (mu - y).abs().sum().item() * self.table.std
            n += len(y)
        return err / n

    def run(self) -> None:
        best = float("inf")
        for epoch in range(self.cfg.epochs):
            self.train_epoch(epoch)
            mae = self.evaluate()
            logger.info("epoch %d holdout MAE %.2f h", epoch, mae)
            best = min(best, mae)
        meta = {"mae": best, "config": dataclasses.asdict(self.cfg)}
        torch.save(self.model.state_dict(), self.cfg.workdir / "eta.pt")
        (self.cfg.workdir / "eta.json").write_text(json.dumps(meta, default=str, indent=2))


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    cfg = TrainConfig()
    torch.manual_seed(cfg.seed)
    cfg.workdir.mkdir(parents=True, exist_ok=True)
    snapshot = cfg.workdir / "snapshot.npz"
    if not snapshot.exists():
        logger.info("building snapshot ...")
        build_snapshot(cfg, snapshot)
    Trainer(cfg, ShipmentTable(snapshot)).run()


if __name__ == "__main__":
    main()
