#!/usr/bin/env python
"""Candidate generation: two-tower retrieval trained on baskets (team: discovery).

Stages: materialise -> load -> train -> report.  Run by the nightly scheduler.
"""
from __future__ import annotations

import argparse
import dataclasses
import logging
import pathlib
import tempfile
import time
from typing import Iterator

import numpy as np
import torch
from torch import Tensor, nn

LOG = logging.getLogger("two_tower")


@dataclasses.dataclass
class TrainConfig:
    workdir: pathlib.Path = pathlib.Path(tempfile.gettempdir()) / "shop_two_tower"
    n_users: int = 250_000
    n_items: int = 60_000
    n_events: int = 3_000_000
    history: int = 20
    dim: int = 64
    hidden: int = 256
    batch_size: int = 1024
    learning_rate: float = 2.0
    temperature: float = 0.1
    epochs: int = 50
    log_every: int = 20
    seed: int = 17


class EventStore:
    """Purchase log in columnar form; memory-mapped, since production logs do not fit."""

    def __init__(self, cfg: TrainConfig) -> None:
        self.cfg = cfg
        self.users_path = cfg.workdir / "users.npy"
        self.items_path = cfg.workdir / "items.npy"
        self.hist_path = cfg.workdir / "history.npy"

    def materialise(self) -> None:
        if self.hist_path.exists():
            return
        cfg = self.cfg
        cfg.workdir.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(cfg.seed)
        n_taste = 50
        taste = rng.integers(0, n_taste, cfg.n_users)
        users = rng.integers(0, cfg.n_users, cfg.n_events)
        rank = (rng.pareto(1.1, cfg.n_events) * 40).astype(np.int64) % (cfg.n_items // n_taste)
        items = rank * n_taste + taste[users]
        hrank = (rng.pareto(1.1, (cfg.n_users, cfg.history)) * 40).astype(np.int64) % (cfg.n_items // n_taste)
        hist = hrank * n_taste + taste[:, None]
        np.save(self.users_path, users.astype(np.int32))
        np.save(self.items_path, items.astype(np.int32))
        np.save(self.hist_path, hist.astype(np.int32))

    def open(self) -> "EventStore":
        self.users = np.load(self.users_path, mmap_mode="r")
        self.items = np.load(self.items_path, mmap_mode="r")
        self.hist = np.load(self.hist_path, mmap_mode="r")
        return self

    def batches(self, rng: np.random.Generator) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        n, bs = len(self.users), self.cfg.batch_size
        starts = rng.permutation(n // bs) * bs
        for s in starts:
            u = np.array(self.users[s:s + bs], dtype=np.int64)
            i = np.array(self.items[s:s + bs], dtype=np.int64)
            h = self.hist[u].astype(np.int64)
            yield torch.from_numpy(u), torch.from_numpy(h), torch.from_numpy(i)


class UserTower(nn.Module):
    def __init__(self, cfg: TrainConfig, items: nn.Embedding) -> None:
        super().__init__()
        self.ids = nn.Embedding(cfg.n_users, cfg.dim)
        nn.init.normal_(self.ids.weight, std=0.5)
        self.items = items
        self.mlp = nn.Sequential(nn.Linear(2 * cfg.dim, cfg.hidden), nn.ReLU(), nn.Linear(cfg.hidden, cfg.dim))

    def forward(self, user: Tensor, history: Tensor) -> Tensor:
        bag = self.items(history).mean(dim=1)
        return self.mlp(torch.cat([self.ids(user), bag], dim=-1))


class ItemTower(nn.Module):
    def __init__(self, cfg: TrainConfig, items: nn.Embedding) -> None:
        super().__init__()
        self.items = items
        self.mlp = nn.Sequential(nn.Linear(cfg.dim, cfg.hidden), nn.ReLU(), nn.Linear(cfg.hidden, cfg.dim))

    def forward(self, item: Tensor) -> Tensor:
        return self.mlp(self.items(item))


class TwoTower(nn.Module):
    def __init__(self, cfg: TrainConfig) -> None:
        super().__init__()
        shared = nn.Embedding(cfg.n_items, cfg.dim)
        nn.init.normal_(shared.weight, std=0.5)
        self.user_tower = UserTower(cfg, shared)
        self.item_tower = ItemTower(cfg, shared)
        self.temperature = cfg.temperature

    def forward(self, user: Tensor, history: Tensor, item: Tensor) -> Tensor:
        u = nn.functional.normalize(self.user_tower(user, history), dim=-1)
        v = nn.functional.normalize(self.item_tower(item), dim=-1)
        scores = u @ v.t() / self.temperature
        # the same item twice in the batch is not a negative
        clash = item.unsqueeze(0) == item.unsqueeze(1)
        clash.fill_diagonal_(False)
        scores = scores.masked_fill(clash, -1e4)
        return nn.functional.cross_entropy(scores, torch.arange(len(item)))


class Trainer:
    def __init__(self, cfg: TrainConfig) -> None:
        self.cfg = cfg
        self.store = EventStore(cfg)
        self.store.materialise()
        self.store.open()
        torch.manual_seed(cfg.seed)
        self.rng = np.random.default_rng(cfg.seed)
        self.model = TwoTower(cfg)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=cfg.learning_rate)
        self.history: list[float] = []

    def train_step(self, batch: tuple[Tensor, Tensor, Tensor]) -> float:
        loss = self.model(*batch)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self) -> None:
        step, mark = 0, time.perf_counter()
        for epoch in range(self.cfg.epochs):
            for batch in self.store.batches(self.rng):
                self.history.append(self.train_step(batch))
                step += 1
                if step % self.cfg.log_every == 0:
                    now = time.perf_counter()
                    rate = self.cfg.log_every * self.cfg.batch_size / (now - mark)
                    mark = now
                    LOG.info("epoch=%d step=%d loss=%.4f events_per_s=%.0f", epoch, step,
                             np.mean(self.history[-self.cfg.log_every:]), rate)


def parse_args() -> TrainConfig:
    parser = argparse.ArgumentParser(description=__doc__)
    for field in dataclasses.fields(TrainConfig):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    return TrainConfig(**vars(parser.parse_args()))


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    Trainer(parse_args()).fit()


if __name__ == "__main__":
    main()
