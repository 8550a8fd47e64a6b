"""Condition monitoring: train the gearbox fault classifier (vibration, 1-D).

Part of the `condmon` pipeline; stages are make -> load -> fit. See Settings for everything that can be set.
"""
from __future__ import annotations

import json
import logging
import os
import tempfile
from collections import deque
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Iterator

import numpy as np
import torch
from torch import Tensor, nn

LOGGER = logging.getLogger("condmon.gearbox")
FAULTS = ("healthy", "inner_race", "outer_race", "chipped_tooth", "misaligned")


@dataclass(frozen=True)
class Settings:
    root: Path = Path(tempfile.gettempdir()) / "gearbox_monitor"
    seed: int = 77
    records: int = 6000
    samples: int = 1024
    batch: int = 96
    width: int = 24
    stages: int = 3
    lr: float = 6e-4
    epochs: int = 500
    smoothing: float = 0.05
    log_level: str = field(default_factory=lambda: os.environ.get("CONDMON_LOG", "INFO"))
    log_every: int = 25


class VibrationStore:
    """Keeps the recordings in one array; makes them at the first use."""

    def __init__(self, settings: Settings) -> None:
        self._s = settings
        self._file = settings.root / "vibration.npz"

    def _simulate(self) -> None:
        s = self._s
        rng = np.random.default_rng(s.seed)
        t = np.arange(s.samples) / 12_000.0
        label = rng.integers(0, len(FAULTS), s.records)
        speed = rng.uniform(24, 30, s.records)[:, None]
        phase = rng.uniform(0, 6.28, (s.records, 1))
        x = np.sin(2 * np.pi * speed * t + phase) + 0.4 * np.sin(2 * np.pi * 19 * speed * t)
        ratio = np.array([1.0, 5.4, 3.6, 1.0, 2.0])[label][:, None]
        burst = np.maximum(np.sin(2 * np.pi * ratio * speed * t + 2 * phase), 0) ** 40
        ring = np.sin(2 * np.pi * np.array([0, 3100, 2700, 1900, 0])[label][:, None] * t)
        x += 1.5 * burst * ring + (label[:, None] == 4) * 0.5 * np.sin(4 * np.pi * speed * t)
        x += rng.normal(0, 0.5, x.shape)
        s.root.mkdir(parents=True, exist_ok=True)
        np.savez(self._file, x=x.astype(np.float32), y=label.astype(np.int64))

    def load(self) -> tuple[Tensor, Tensor]:
        if not self._file.exists():
            self._simulate()
        z = np.load(self._file)
        x = torch.from_numpy(z["x"])
        return (x / x.std(dim=1, keepdim=True)).unsqueeze(1), torch.from_numpy(z["y"])


class Residual(nn.Module):
    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.a = nn.Conv1d(width, width, 5, padding=2 * dilation, dilation=dilation)
        self.b = nn.Conv1d(width, width, 1)
        self.norm = nn.GroupNorm(4, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.b(torch.relu(self.norm(self.a(x))))


class GearboxNet(nn.Module):
    def __init__(self, s: Settings) -> None:
        super().__init__()
        self.entry = nn.Conv1d(1, s.width, 32, stride=4, padding=14)
        self.body = nn.ModuleList(Residual(s.width, 2 ** (k % 3)) for k in range(2 * s.stages))
        self.exit = nn.Linear(s.width, len(FAULTS))

    def forward(self, x: Tensor) -> Tensor:
        x = self.entry(x)
        for k, block in enumerate(self.body):
            x = block(x)
            if k % 2 == 1 and k < len(self.body) - 1:
                x = torch.nn.functional.avg_pool1d(x, 2)
        return self.exit(x.mean(dim=2))


class Fitter:
    def __init__(self, settings: Settings) -> None:
        self.s = settings
        torch.manual_seed(settings.seed)
        self.net = GearboxNet(settings)
        self.optim = torch.optim.NAdam(self.net.parameters(), lr=settings.lr)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=settings.smoothing)
        self.recent: deque[float] = deque(maxlen=100)
        self.step = 0
        self.started = monotonic()

    def batches(self, x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(x))
        for chosen in order.split(self.s.batch):
            if len(chosen) == self.s.batch:
                yield x[chosen], y[chosen]

    def update(self, x: Tensor, y: Tensor) -> None:
        self.optim.zero_grad()
        logits = self.net(x)
        loss = self.criterion(logits, y)
        loss.backward()
        self._trace(x, logits)
        self.optim.step()
        self.step += 1
        self.recent.append(loss.item())
        if self.step % self.s.log_every == 0:
            self._report()

    def _trace(self, x: Tensor, logits: Tensor) -> None:
        LOGGER.debug(f"step {self.step} input {x} logits {logits}")
        for name, p in self.net.named_parameters():
            LOGGER.debug(f"{name}: value {p.data} grad {p.grad}")

    def _report(self) -> None:
        rate = self.step * self.s.batch / (monotonic() - self.started)
        LOGGER.info("step %6d  loss %.4f  %.0f records/s", self.step, sum(self.recent) / len(self.recent), rate)

    @torch.no_grad()
    def accuracy(self, x: Tensor, y: Tensor) -> float:
        self.net.eval()
        good = sum((self.net(a).argmax(1) == b).sum().item() for a, b in zip(x.split(200), y.split(200)))
        self.net.train()
        return good / len(x)

    def fit(self, x: Tensor, y: Tensor) -> None:
        held = len(x) // 20
        best = 0.0
        for epoch in range(self.s.epochs):
            for xb, yb in self.batches(x[held:], y[held:]):
                self.update(xb, yb)
            acc = self.accuracy(x[:held], y[:held])
            LOGGER.info("epoch %d done, accuracy %.3f", epoch, acc)
            if acc > best:
                best = acc
                torch.save(self.net.state_dict(), self.s.root / "best.pt")


def main() -> None:
    settings = Settings()
    logging.basicConfig(level=settings.log_level, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    LOGGER.info("settings %s", json.dumps(asdict(settings), default=str))
    x, y = VibrationStore(settings).load()
    LOGGER.info("%d records, classes %s", len(x), dict(zip(FAULTS, torch.bincount(y).tolist())))
    Fitter(settings).fit(x, y)


if __name__ == "__main__":
    main()
