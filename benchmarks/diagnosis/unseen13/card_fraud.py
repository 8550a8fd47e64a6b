# -*- coding: utf-8 -*-
"""
Card-not-present fraud scorer, training entry point.

    Experiment
      |- TransactionSource   (raw events -> tensors)
      |- FraudScorer         (model)
      |- Monitor             (rolling quality figures, what the risk desk looks at)
      '- ConsoleSink
"""
import abc
import collections
import dataclasses
import os
import pathlib
import tempfile
import time
import typing as t

import numpy as np
import torch
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CACHE = pathlib.Path(tempfile.gettempdir()) / "card_fraud"


@dataclasses.dataclass(frozen=True)
class Settings:
    n_transactions: int = 250_000
    n_numeric: int = 48
    cardinalities: t.Tuple[int, ...] = (60, 240, 12, 31)   # mcc, country, channel, issuer bucket
    batch_size: int = 512
    epochs: int = 8
    learning_rate: float = 1e-3
    positive_weight: float = 8.0
    monitor_window: int = 40_000
    report_every: int = 40
    target_precision: float = 0.6
    threads: int = 1


class TransactionSource:
    def __init__(self, settings: Settings):
        self.s = settings
        self.file = CACHE / "transactions.npz"

    def _generate(self):
        s, rng = self.s, np.random.default_rng(77)
        numeric = rng.standard_normal((s.n_transactions, s.n_numeric), dtype=np.float32)
        codes = np.stack([rng.integers(0, c, s.n_transactions) for c in s.cardinalities], 1)
        risk = [rng.normal(size=c) for c in s.cardinalities]
        z = 0.7 * numeric[:, 0] * numeric[:, 1] + numeric[:, 2] - 0.5 * np.abs(numeric[:, 3])
        z = z + 0.6 * sum(r[codes[:, i]] for i, r in enumerate(risk))
        label = rng.random(s.n_transactions) < 1 / (1 + np.exp(5.0 - 1.3 * z))
        CACHE.mkdir(parents=True, exist_ok=True)
        part = CACHE / f"part{os.getpid()}.npz"
        np.savez(part, numeric=numeric, codes=codes.astype(np.int16), label=label)
        os.replace(part, self.file)

    def dataset(self) -> TensorDataset:
        if not self.file.exists():
            self._generate()
        raw = np.load(self.file)
        return TensorDataset(
            torch.from_numpy(raw["numeric"]),
            torch.from_numpy(raw["codes"].astype(np.int64)),
            torch.from_numpy(raw["label"].astype(np.float32)),
        )


class FraudScorer(nn.Module):
    def __init__(self, s: Settings):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(c, 8) for c in s.cardinalities)
        width = s.n_numeric + 8 * len(s.cardinalities)
        self.norm = nn.BatchNorm1d(s.n_numeric)
        self.body = nn.Sequential(
            nn.Linear(width, 128), nn.ReLU(),
            nn.Linear(128, 64), nn.ReLU(),
            nn.Linear(64, 1),
        )

    def forward(self, numeric, codes):
        parts = [self.norm(numeric)] + [table(codes[:, i]) for i, table in enumerate(self.tables)]
        return self.body(torch.cat(parts, 1)).squeeze(1)


class Sink(abc.ABC):
    @abc.abstractmethod
    def write(self, step: int, values: t.Mapping[str, float]) -> None: ...


class ConsoleSink(Sink):
    def __init__(self, every: int):
        self.every = every
        self.started = time.monotonic()

    def write(self, step, values):
        if step % self.every:
            return
        text = "  ".join(f"{k}={v:.4f}" for k, v in values.items())
        print(f"{time.monotonic() - self.started:7.1f}s  step {step:6d}  {text}", flush=True)


class Monitor:
    """Rolling quality figures over the most recent transactions."""

    def __init__(self, s: Settings, sinks: t.Sequence[Sink]):
        self.s, self.sinks = s, sinks
        blocks = s.monitor_window // s.batch_size
        self.scores: t.Deque[np.ndarray] = collections.deque(maxlen=blocks)
        self.labels: t.Deque[np.ndarray] = collections.deque(maxlen=blocks)

    def figures(self) -> t.Dict[str, float]:
        score, label = np.concatenate(self.scores), np.concatenate(self.labels)
        if label.sum() == 0:
            return {}
        precision, recall, _ = precision_recall_curve(label, score)
        return {
            "auc": roc_auc_score(label, score),
            "ap": average_precision_score(label, score),
            "recall@p": float(recall[precision >= self.s.target_precision].max(initial=0.0)),
        }

    def on_step(self, step: int, loss: torch.Tensor, logits: torch.Tensor, label: torch.Tensor) -> None:
        self.scores.append(torch.sigmoid(logits).detach().numpy())
        self.labels.append(label.numpy())
        values = {"loss": loss.item(), **self.figures()}
        for sink in self.sinks:
            sink.write(step, values)


class Experiment:
    def __init__(self, s: Settings):
        torch.manual_seed(2024)
        self.s = s
        self.loader = DataLoader(TransactionSource(s).dataset(), s.batch_size, shuffle=True, drop_last=True)
        self.model = FraudScorer(s)
        self.criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(s.positive_weight))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=s.learning_rate)
        self.monitor = Monitor(s, [ConsoleSink(s.report_every)])

    def run(self):
        step = 0
        for _ in range(self.s.epochs):
            for numeric, codes, label in self.loader:
                logits = self.model(numeric, codes)
                loss = self.criterion(logits, label)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                step += 1
                self.monitor.on_step(step, loss, logits, label)


if __name__ == "__main__":
    Experiment(Settings()).run()
