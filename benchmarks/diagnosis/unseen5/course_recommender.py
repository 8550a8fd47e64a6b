# Which learner finishes which course? Neural collaborative filtering with side features.
from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.stats import rankdata
from torch import nn


@dataclass
class Settings:
    learners: int = 6000
    courses: int = 1500
    events: int = 700_000
    holdout: int = 60_000
    dim: int = 48
    hidden: list[int] = field(default_factory=lambda: [256, 128])
    batch: int = 4096
    epochs: int = 90
    lr: float = 1.5e-3
    report: int = 40
    seed: int = 2024


@dataclass
class Events:
    learner: torch.Tensor
    course: torch.Tensor
    context: torch.Tensor
    finished: torch.Tensor

    def __len__(self):
        return len(self.finished)

    def pick(self, idx) -> "Events":
        return Events(self.learner[idx], self.course[idx], self.context[idx], self.finished[idx])


def make_events(s: Settings) -> tuple[Events, Events]:
    rng = np.random.default_rng(s.seed)
    taste = rng.normal(size=(s.learners, 8))
    topic = rng.normal(size=(s.courses, 8))
    stamina = rng.normal(size=s.learners)
    effort = rng.normal(size=s.courses)
    u = rng.integers(s.learners, size=s.events)
    popularity = rng.zipf(1.3, size=s.events) % s.courses
    c = np.where(rng.random(s.events) < 0.5, popularity, rng.integers(s.courses, size=s.events))
    ctx = rng.normal(size=(s.events, 6)).astype(np.float32)
    score = (taste[u] * topic[c]).sum(1) / 2 + 0.6 * stamina[u] - 0.7 * effort[c] + 0.3 * ctx[:, 0] - 0.2 * ctx[:, 3]
    y = (rng.random(s.events) < 1 / (1 + np.exp(-score))).astype(np.float32)
    everything = Events(torch.from_numpy(u), torch.from_numpy(c), torch.from_numpy(ctx), torch.from_numpy(y))
    order = torch.from_numpy(rng.permutation(s.events))
    return everything.pick(order[s.holdout:]), everything.pick(order[: s.holdout])


class NeuralCF(nn.Module):
    def __init__(self, s: Settings):
        super().__init__()
        self.learner = nn.Embedding(s.learners, s.dim)
        self.course = nn.Embedding(s.courses, s.dim)
        self.bias_l = nn.Embedding(s.learners, 1)
        self.bias_c = nn.Embedding(s.courses, 1)
        for e in (self.learner, self.course, self.bias_l, self.bias_c):
            nn.init.normal_(e.weight, std=0.05)
        layers, width = [], 3 * s.dim + 6
        for h in s.hidden:
            layers += [nn.Linear(width, h), nn.LayerNorm(h), nn.GELU()]
            width = h
        self.tower = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, ev: Events):
        a, b = self.learner(ev.learner), self.course(ev.course)
        deep = self.tower(torch.cat([a, b, a * b, ev.context], 1))
        return (deep + self.bias_l(ev.learner) + self.bias_c(ev.course)).squeeze(1)


def auc(scores: np.ndarray, truth: np.ndarray) -> float:
    """Area under the ROC curve from the rank sum, ties shared."""
    positive = truth > 0.5
    n1 = int(positive.sum())
    n0 = len(truth) - n1
    if n1 == 0 or n0 == 0:
        return float("nan")
    ranks = rankdata(scores)
    return float((ranks[positive].sum() - n1 * (n1 + 1) / 2) / (n1 * n0))


class RunningAUC:
    def __init__(self):
        self.clear()

    def clear(self):
        self.scores, self.truth = [], []

    def update(self, logits, y):
        self.scores.append(logits.detach().numpy())
        self.truth.append(y.numpy())

    def value(self):
        return auc(np.concatenate(self.scores), np.concatenate(self.truth))


def evaluate(model, ev: Events, size=20_000):
    model.eval()
    with torch.no_grad():
        logits = torch.cat([model(ev.pick(slice(i, i + size))) for i in range(0, len(ev), size)])
    return auc(logits.numpy(), ev.finished.numpy())


def fit(s: Settings):
    torch.manual_seed(s.seed)
    train, held = make_events(s)
    model = NeuralCF(s)
    opt = torch.optim.Adam(model.parameters(), lr=s.lr)
    criterion = nn.BCEWithLogitsLoss()
    metric = RunningAUC()
    for epoch in range(1, s.epochs + 1):
        model.train()
        metric.clear()
        order = torch.randperm(len(train))
        batches = order.split(s.batch)
        for k, idx in enumerate(batches, 1):
            ev = train.pick(idx)
            logits = model(ev)
            loss = criterion(logits, ev.finished)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            metric.update(logits, ev.finished)
            train_auc = metric.value()
            if k % s.report == 0 or k == len(batches):
                print(f"[{epoch:02d}] {k:4d}/{len(batches)}  bce {loss.item():.4f}  auc {train_auc:.4f}", flush=True)
        print(f"[{epoch:02d}] held-out auc {evaluate(model, held):.4f}", flush=True)


if __name__ == "__main__":
    fit(Settings())
