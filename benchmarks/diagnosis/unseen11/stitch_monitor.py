"""Condition monitoring for industrial sewing machines.

Classifies short recordings of the needle-bar sensors (force, thread tension,
acceleration) into stitch faults. The recurrent core has an orthogonal
transition matrix, which keeps gradients healthy over a few hundred samples.
"""
from __future__ import annotations

import dataclasses
import logging
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.data import DataLoader, Dataset, random_split

logger = logging.getLogger("stitch_monitor")

FAULTS = ("ok", "skipped_stitch", "thread_break", "needle_bent", "loose_tension")


@dataclasses.dataclass(frozen=True)
class Config:
    workdir: Path = Path(tempfile.gettempdir()) / "stitch_monitor"
    recordings: int = 8000
    channels: int = 4
    samples: int = 96
    hidden: int = 96
    batch_size: int = 128
    epochs: int = 30
    learning_rate: float = 1e-3
    max_norm: float = 1.0
    log_every: int = 25
    patience: int = 6
    seed: int = 99


class RecordingStore:
    """Simulated test-bench recordings, kept as one .npy file per array."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self.signal_file = cfg.workdir / "signals.npy"
        self.label_file = cfg.workdir / "labels.npy"

    def ensure(self) -> None:
        if self.label_file.exists():
            return
        self.cfg.workdir.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(self.cfg.seed)
        labels = rng.integers(0, len(FAULTS), self.cfg.recordings)
        signals = np.stack([self._record(rng, FAULTS[k]) for k in labels])
        np.save(self.signal_file, signals.astype(np.float32))
        np.save(self.label_file, labels)

    def _record(self, rng: np.random.Generator, fault: str) -> np.ndarray:
        t = np.arange(self.cfg.samples)
        speed = rng.uniform(0.35, 0.55)
        phase = speed * t + rng.uniform(0, 2 * np.pi)
        force = np.maximum(np.sin(phase), 0) ** 3
        tension = 0.6 + 0.3 * np.cos(phase)
        acc = np.cos(phase) + 0.2 * np.sin(2 * phase)
        if fault == "skipped_stitch":
            lo = rng.integers(10, self.cfg.samples - 20)
            tension[lo:lo + 12] *= 0.3
        elif fault == "thread_break":
            tension[rng.integers(20, self.cfg.samples - 20):] = 0.05
        elif fault == "needle_bent":
            force += 0.25 * np.maximum(np.sin(3 * phase), 0)
        elif fault == "loose_tension":
            tension -= 0.25
        sig = np.stack([force, tension, acc, np.full_like(force, speed)])
        return sig.T + rng.normal(0, 0.08, (self.cfg.samples, 4))


class Recordings(Dataset):
    def __init__(self, store: RecordingStore) -> None:
        store.ensure()
        self.signals = torch.from_numpy(np.load(store.signal_file))
        self.labels = torch.from_numpy(np.load(store.label_file))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.signals[i], self.labels[i]


class OrthogonalCell(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.transition = parametrizations.orthogonal(
            nn.Linear(hidden, hidden, bias=False), orthogonal_map="cayley")
        self.bias = nn.Parameter(torch.zeros(hidden))

    def forward(self, drive: Tensor, state: Tensor) -> Tensor:
        z = self.transition(state) + drive
        return torch.sign(z) * torch.relu(z.abs() + self.bias)


class StitchClassifier(nn.Module):
    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.embed = nn.Linear(cfg.channels, cfg.hidden)
        self.cell = OrthogonalCell(cfg.hidden)
        self.head = nn.Sequential(nn.LayerNorm(cfg.hidden), nn.Linear(cfg.hidden, len(FAULTS)))

    def forward(self, signal: Tensor) -> Tensor:
        drive = self.embed(signal.transpose(0, 1)).unbind(0)
        state = torch.zeros_like(drive[0])
        for d in drive:
            state = self.cell(d, state)
        return self.head(state)


class Trainer:
    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        data = Recordings(RecordingStore(cfg))
        n_val = len(data) // 20
        train, val = random_split(data, [len(data) - n_val, n_val])
        self.train_loader = DataLoader(train, cfg.batch_size, shuffle=True, drop_last=True)
        self.val_loader = DataLoader(val, 200)
        self.model = StitchClassifier(cfg)
        self.loss_fn = nn.CrossEntropyLoss(label_smoothing=0.05)
        self.optimizer = torch.optim.RMSprop(self.model.parameters(), lr=cfg.learning_rate)
        self.step = 0

    def train_step(self, signal: Tensor, label: Tensor) -> float:
        self.optimizer.zero_grad()
        loss = self.loss_fn(self.model(signal), label)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.max_norm)
        self.optimizer.step()
        self.step += 1
        return loss.item()

    @torch.no_grad()
    def validate(self) -> float:
        self.model.eval()
        hits = sum((self.model(x).argmax(1) == y).sum().item() for x, y in self.val_loader)
        self.model.train()
        return hits / len(self.val_loader.dataset)

    def run(self) -> None:
        best, stale = 0.0, 0
        for epoch in range(self.cfg.epochs):
            tic, total = time.perf_counter(), 0.0
            for k, (signal, label) in enumerate(self.train_loader, 1):
                total += self.train_step(signal, label)
                if self.step % self.cfg.log_every == 0:
                    rate = k / (time.perf_counter() - tic)
                    logger.info("step %d loss %.4f (%.1f steps/s)", self.step, total / k, rate)
            acc = self.validate()
            logger.info("epoch %d validation accuracy %.3f", epoch, acc)
            stale = 0 if acc > best else stale + 1
            if acc > best:
                best = acc
                torch.save(self.model.state_dict(), self.cfg.workdir / "best.pt")
            if stale > self.cfg.patience and best > 0.99:
                break


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stdout, level=logging.INFO,
                        format="%(asctime)s %(name)s %(levelname)s %(message)s")
    Trainer(Config()).run()
