"""Metric learning on mosquito wingbeat spectra (trap network, firmware 2.x).

Trains the embedding that the traps use for nearest-neighbour species lookup.
Batches are P species x K recordings, as in Hermans et al. 2017.
"""
from __future__ import annotations

import logging
import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

log = logging.getLogger("wingbeat")


@dataclass
class DataConfig:
    root: Path = Path(tempfile.gettempdir()) / "wingbeat_metric"
    n_recordings: int = 340_000
    n_species: int = 24
    n_bins: int = 96
    seed: int = 2024


@dataclass
class BatchConfig:
    species_per_batch: int = 12
    recordings_per_species: int = 6
    batches_per_epoch: int = 600


@dataclass
class TrainConfig:
    data: DataConfig = field(default_factory=DataConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    embedding_dim: int = 48
    hidden: int = 640
    margin: float = 0.25
    lr: float = 8e-4
    weight_decay: float = 1e-4
    epochs: int = 12
    log_every: int = 100
    seed: int = 0
    num_threads: int = 1


def build_recordings(cfg: DataConfig) -> Path:
    """Synthesise spectra: a fundamental per species and sex, with harmonics and noise."""
    target = cfg.root / f"recordings_{cfg.n_recordings}_{cfg.n_species}.npz"
    if target.exists():
        return target
    cfg.root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(cfg.seed)
    species = rng.integers(cfg.n_species, size=cfg.n_recordings)
    fundamental = np.linspace(6.0, 18.0, cfg.n_species)[species]
    fundamental = fundamental * np.where(rng.random(cfg.n_recordings) < 0.5, 1.0, 1.22)
    fundamental = (fundamental + rng.normal(scale=0.25, size=cfg.n_recordings)).astype(np.float32)
    bins = np.arange(cfg.n_bins, dtype=np.float32)
    spectra = np.empty((cfg.n_recordings, cfg.n_bins), np.uint8)
    for lo in range(0, cfg.n_recordings, 40_000):
        f = fundamental[lo:lo + 40_000, None]
        s = sum(a * np.exp(-0.5 * ((bins - h * f) / (0.8 + 0.3 * h)) ** 2) for h, a in ((1, 1.0), (2, 0.6), (3, 0.3)))
        s += 0.15 * rng.random(s.shape, dtype=np.float32)
        spectra[lo:lo + 40_000] = np.clip(s * 180, 0, 255)
    partial = target.with_suffix(".part.npz")
    np.savez(partial, spectra=spectra, species=species.astype(np.int64))
    partial.rename(target)
    return target


class RecordingSet(Dataset):
    def __init__(self, path: Path) -> None:
        with np.load(path) as archive:
            self.spectra = torch.from_numpy(archive["spectra"])
            self.species = archive["species"].tolist()

    def __len__(self) -> int:
        return len(self.species)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.spectra[index], self.species[index]


class SpeciesBatchSampler(Sampler[list[int]]):
    """P x K batches; a recording comes back only when its species is exhausted."""

    def __init__(self, species: list[int], cfg: BatchConfig, seed: int = 0) -> None:
        self.cfg = cfg
        self.rng = random.Random(seed)
        self.by_species: dict[int, list[int]] = {}
        for index, s in enumerate(species):
            self.by_species.setdefault(s, []).append(index)
        self.used: set[int] = set()

    def __len__(self) -> int:
        return self.cfg.batches_per_epoch

    def _draw(self, s: int) -> list[int]:
        k = self.cfg.recordings_per_species
        available = [i for i in self.by_species[s] if i not in self.used]
        if len(available) < k:
            self.used.difference_update(self.by_species[s])
            available = list(self.by_species[s])
        chosen = self.rng.sample(available, k)
        self.used.update(chosen)
        return chosen

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(len(self)):
            batch: list[int] = []
            for s in self.rng.sample(sorted(self.by_species), self.cfg.species_per_batch):
                batch.extend(self._draw(s))
            yield batch


class Embedder(nn.Module):
    def __init__(self, n_bins: int, hidden: int, dim: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(n_bins, hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, dim),
        )

    def forward(self, spectra: Tensor) -> Tensor:
        return F.normalize(self.net(spectra.float() / 127.5 - 1.0), dim=1)


def batch_hard_loss(emb: Tensor, species: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    dist = 1.0 - emb @ emb.T
    same = species[:, None] == species[None, :]
    hardest_positive = dist.masked_fill(~same, -1.0).amax(1)
    hardest_negative = dist.masked_fill(same, 3.0).amin(1)
    violation = hardest_positive - hardest_negative + margin
    return F.softplus(8 * violation).mean() / 8, (violation > 0).float().mean()


class Trainer:
    def __init__(self, cfg: TrainConfig) -> None:
        torch.manual_seed(cfg.seed)
        torch.set_num_threads(cfg.num_threads)
        self.cfg = cfg
        self.dataset = RecordingSet(build_recordings(cfg.data))
        sampler = SpeciesBatchSampler(self.dataset.species, cfg.batch, cfg.seed)
        self.loader = DataLoader(self.dataset, batch_sampler=sampler)
        self.model = Embedder(cfg.data.n_bins, cfg.hidden, cfg.embedding_dim)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)

    def run(self) -> None:
        step, started = 0, time.monotonic()
        for epoch in range(self.cfg.epochs):
            for spectra, species in self.loader:
                loss, violating = batch_hard_loss(self.model(spectra), species, self.cfg.margin)
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                self.optimizer.step()
                step += 1
                if step % self.cfg.log_every == 0:
                    log.info("epoch %d step %d loss %.4f violating %.2f (%.1f steps/s)", epoch, step,
                             loss.item(), violating.item(), step / (time.monotonic() - started))
            torch.save(self.model.state_dict(), self.cfg.data.root / "embedder_last.pt")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    Trainer(TrainConfig()).run()
