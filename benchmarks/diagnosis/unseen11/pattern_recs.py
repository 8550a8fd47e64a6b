"""Candidate ranker for the sewing pattern shop ("makers who sewed this also sewed ...").

NeuMF on implicit feedback; fresh negatives for every pass over the purchases.
"""
from __future__ import annotations

import dataclasses
import logging
import tempfile
import time
from pathlib import Path
from typing import Iterator

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

logger = logging.getLogger("pattern_recs")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    num_makers: int = 5000
    num_patterns: int = 3000
    num_purchases: int = 70_000
    negatives_per_positive: int = 4
    batch_size: int = 16384
    cache_dir: Path = Path(tempfile.gettempdir()) / "pattern_recs"


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    gmf_dim: int = 16
    mlp_dim: int = 16
    hidden: tuple[int, ...] = (32, 16)
    dropout: float = 0.1


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    epochs: int = 150
    lr: float = 2e-3
    threads: int = 1
    seed: int = 2024
    eval_every: int = 10
    top_k: int = 10
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)


class PurchaseLog:
    """Purchases with taste clusters (garments, bags, quilts, ...), last one held out."""

    def __init__(self, config: DataConfig) -> None:
        self.config = config
        path = config.cache_dir / f"purchases_{config.num_purchases}.npz"
        if not path.exists():
            config.cache_dir.mkdir(parents=True, exist_ok=True)
            np.savez(path, **self._simulate(np.random.default_rng(99)))
        with np.load(path) as z:
            self.train, self.test = z["train"], z["test"]
        logger.info("%d purchases, %d held out", len(self.train), len(self.test))

    def _simulate(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        c = self.config
        clusters = 12
        maker_taste = rng.dirichlet(np.full(clusters, 0.25), c.num_makers)
        pattern_cluster = rng.integers(0, clusters, c.num_patterns)
        popularity = rng.zipf(1.6, c.num_patterns).clip(max=200).astype(float)
        members = [np.flatnonzero(pattern_cluster == k) for k in range(clusters)]
        weights = [popularity[m] / popularity[m].sum() for m in members]
        pairs = set()
        while len(pairs) < c.num_purchases + c.num_makers:
            makers = rng.integers(0, c.num_makers, 20_000)
            u = rng.random(20_000)[:, None]
            taste = (maker_taste[makers].cumsum(1) < u).sum(1).clip(max=clusters - 1)
            for k in range(clusters):
                who = makers[taste == k]
                pairs.update(zip(who.tolist(), rng.choice(members[k], len(who), p=weights[k]).tolist()))
        pairs = np.array(sorted(pairs), dtype=np.int64)
        pairs = pairs[rng.permutation(len(pairs))]
        _, last = np.unique(pairs[:, 0], return_index=True)
        mask = np.zeros(len(pairs), dtype=bool)
        mask[last] = True
        return {"train": pairs[~mask], "test": pairs[mask][:500]}


class InteractionBatches(IterableDataset):
    """Shuffled batches of (maker, pattern, bought) with sampled negatives."""

    def __init__(self, purchases: np.ndarray, config: DataConfig, seed: int) -> None:
        self.purchases = purchases
        self.config = config
        self.rng = np.random.default_rng(seed)
        self.bought = sp.dok_matrix((config.num_makers, config.num_patterns), dtype=np.float32)
        for maker, pattern in purchases:
            self.bought[maker, pattern] = 1.0

    def __len__(self) -> int:
        total = len(self.purchases) * (1 + self.config.negatives_per_positive)
        return total // self.config.batch_size

    def _sample_negatives(self) -> np.ndarray:
        negatives = []
        for maker, _ in self.purchases:
            for _ in range(self.config.negatives_per_positive):
                pattern = np.random.randint(self.config.num_patterns)
                while (maker, pattern) in self.bought:
                    pattern = np.random.randint(self.config.num_patterns)
                negatives.append((maker, pattern))
        return np.array(negatives, dtype=np.int64)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        negatives = self._sample_negatives()
        pairs = torch.from_numpy(np.concatenate([self.purchases, negatives]))
        labels = torch.zeros(len(pairs))
        labels[: len(self.purchases)] = 1.0
        order = torch.from_numpy(self.rng.permutation(len(pairs)))
        size = self.config.batch_size
        for start in range(0, len(self) * size, size):
            idx = order[start : start + size]
            batch = pairs[idx]
            yield batch[:, 0], batch[:, 1], labels[idx]


class NeuMF(nn.Module):
    def __init__(self, data: DataConfig, config: ModelConfig) -> None:
        super().__init__()
        self.maker_gmf = nn.Embedding(data.num_makers, config.gmf_dim)
        self.pattern_gmf = nn.Embedding(data.num_patterns, config.gmf_dim)
        self.maker_mlp = nn.Embedding(data.num_makers, config.mlp_dim)
        self.pattern_mlp = nn.Embedding(data.num_patterns, config.mlp_dim)
        layers: list[nn.Module] = []
        width = 2 * config.mlp_dim
        for h in config.hidden:
            layers += [nn.Linear(width, h), nn.ReLU(), nn.Dropout(config.dropout)]
            width = h
        self.mlp = nn.Sequential(*layers)
        self.out = nn.Linear(width + config.gmf_dim, 1)
        for emb in (self.maker_gmf, self.pattern_gmf, self.maker_mlp, self.pattern_mlp):
            nn.init.normal_(emb.weight, std=0.05)

    def forward(self, maker: Tensor, pattern: Tensor) -> Tensor:
        gmf = self.maker_gmf(maker) * self.pattern_gmf(pattern)
        mlp = self.mlp(torch.cat([self.maker_mlp(maker), self.pattern_mlp(pattern)], dim=1))
        return self.out(torch.cat([gmf, mlp], dim=1)).squeeze(1)


class RankerTrainer:
    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        torch.manual_seed(config.seed)
        np.random.seed(config.seed)
        torch.set_num_threads(config.threads)
        self.log = PurchaseLog(config.data)
        self.loader = DataLoader(InteractionBatches(self.log.train, config.data, config.seed), batch_size=None)
        self.model = NeuMF(config.data, config.model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.lr)
        self.criterion = nn.BCEWithLogitsLoss()

    @torch.no_grad()
    def hit_rate(self) -> float:
        self.model.eval()
        rng = np.random.default_rng(0)
        test = torch.from_numpy(self.log.test)
        others = torch.from_numpy(rng.integers(0, self.config.data.num_patterns, (len(test), 99)))
        candidates = torch.cat([test[:, 1:], others], dim=1)
        makers = test[:, :1].expand_as(candidates)
        scores = self.model(makers.reshape(-1), candidates.reshape(-1)).view_as(candidates)
        self.model.train()
        return (scores.argsort(1, descending=True)[:, : self.config.top_k] == 0).any(1).float().mean().item()

    def fit(self) -> None:
        for epoch in range(1, self.config.epochs + 1):
            began, running = time.perf_counter(), 0.0
            for maker, pattern, bought in self.loader:
                loss = self.criterion(self.model(maker, pattern), bought)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                running += loss.item()
            logger.info("epoch %d loss %.4f (%.1f s)", epoch, running / len(self.loader), time.perf_counter() - began)
            if epoch % self.config.eval_every == 0:
                logger.info("HR@%d %.3f", self.config.top_k, self.hit_rate())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    RankerTrainer(TrainConfig()).fit()
