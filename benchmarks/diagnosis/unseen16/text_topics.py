"""Topic labels for short support tickets: word vectors and dense layers, JSON-lines data."""
import json
import re
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassAUROC, MulticlassF1Score

FOLDER = Path(tempfile.gettempdir()) / "text_topics_data"


@dataclass
class Config:
    tickets: int = 24_000
    topics: int = 12
    max_len: int = 96
    dim: int = 96
    hidden: int = 256
    dropout: float = 0.2
    batch_size: int = 64
    lr: float = 5e-4
    warmup: int = 300
    epochs: int = 80
    log_every: int = 50
    metrics: list = field(default_factory=lambda: ["acc", "f1", "auroc"])
    seed: int = 17


def write_tickets(cfg):
    path = FOLDER / "tickets.jsonl"
    if path.exists():
        return path
    FOLDER.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(cfg.seed)
    syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    words = np.array(["".join(rng.choice(syllables, rng.integers(1, 5))) for _ in range(9000)])
    common = 1 / np.arange(1, len(words) + 1)
    tables = []
    for _ in range(cfg.topics):
        boost = np.ones(len(words))
        boost[rng.choice(len(words), 250, replace=False)] = 4
        tables.append(np.cumsum(common * boost / (common * boost).sum()))
    with open(path.with_suffix(".tmp"), "w") as f:
        for _ in range(cfg.tickets):
            topic = int(rng.integers(cfg.topics))
            n = int(np.clip(rng.normal(64, 16), 20, 110))
            text = " ".join(words[np.searchsorted(tables[topic], rng.random(n)).clip(max=len(words) - 1)])
            f.write(json.dumps({"text": text.capitalize() + ".", "topic": topic}) + "\n")
    path.with_suffix(".tmp").rename(path)
    return path


class Vocabulary:
    pattern = re.compile(r"[a-z]+|[.,!?]")

    def __init__(self, texts, size=8000):
        counts = Counter(w for t in texts for w in self.pattern.findall(t.lower()))
        self.index = {w: i + 2 for i, (w, _) in enumerate(counts.most_common(size))}

    def __len__(self):
        return len(self.index) + 2

    def encode(self, text, limit):
        return [self.index.get(w, 1) for w in self.pattern.findall(text.lower())][:limit]


class Tickets(Dataset):
    def __init__(self, rows, vocab, cfg):
        self.items = [(torch.tensor(vocab.encode(r["text"], cfg.max_len)), r["topic"]) for r in rows]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(items):
    ids = nn.utils.rnn.pad_sequence([i for i, _ in items], batch_first=True)
    return ids, torch.tensor([t for _, t in items])


class TopicModel(nn.Module):
    """Mean of word vectors, then two dense layers."""

    def __init__(self, words, cfg):
        super().__init__()
        self.words = nn.Embedding(words, cfg.dim, padding_idx=0)
        self.body = nn.Sequential(nn.LayerNorm(cfg.dim), nn.Dropout(cfg.dropout), nn.Linear(cfg.dim, cfg.hidden),
                                  nn.GELU(), nn.Linear(cfg.hidden, cfg.hidden), nn.GELU())
        self.out = nn.Linear(cfg.hidden, cfg.topics)

    def forward(self, ids):
        keep = (ids != 0).unsqueeze(-1)
        mean = (self.words(ids) * keep).sum(1) / keep.sum(1)
        return self.out(self.body(mean))


def build_metrics(cfg):
    known = {"acc": MulticlassAccuracy(cfg.topics), "f1": MulticlassF1Score(cfg.topics),
             "auroc": MulticlassAUROC(cfg.topics)}
    return MetricCollection({k: known[k] for k in cfg.metrics})


class Callback:
    def on_step(self, trainer, loss, scores): ...
    def on_epoch(self, trainer, scores): ...


class JsonLogger(Callback):
    def __init__(self, path):
        self.file = open(path, "w")

    def on_step(self, trainer, loss, scores):
        row = {"step": trainer.step, "loss": round(loss, 5), **{k: round(v.item(), 4) for k, v in scores.items()}}
        self.file.write(json.dumps(row) + "\n")

    def on_epoch(self, trainer, scores):
        self.file.flush()


class Console(Callback):
    def __init__(self, every):
        self.every, self.last = every, time.time()

    def on_step(self, trainer, loss, scores):
        if trainer.step % self.every == 0:
            now = time.time()
            shown = " ".join(f"{k} {v:.3f}" for k, v in scores.items())
            print(f"step {trainer.step} loss {loss:.3f} {shown} {self.every / (now - self.last):.1f} it/s", flush=True)
            self.last = now

    def on_epoch(self, trainer, scores):
        print("validation", " ".join(f"{k} {v:.3f}" for k, v in scores.items()), flush=True)


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        rows = [json.loads(line) for line in open(write_tickets(cfg))]
        held = len(rows) // 20
        vocab = Vocabulary([r["text"] for r in rows[held:]])
        self.train_loader = DataLoader(Tickets(rows[held:], vocab, cfg), cfg.batch_size, shuffle=True,
                                       collate_fn=collate, drop_last=True)
        self.val_loader = DataLoader(Tickets(rows[:held], vocab, cfg), 64, collate_fn=collate)
        self.model = TopicModel(len(vocab), cfg)
        self.opt = torch.optim.AdamW(self.model.parameters(), cfg.lr)
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, lambda s: min(1.0, (s + 1) / cfg.warmup))
        self.train_metrics, self.val_metrics = build_metrics(cfg), build_metrics(cfg)
        self.callbacks = [JsonLogger(FOLDER / "history.jsonl"), Console(cfg.log_every)]
        self.step = 0

    def train_step(self, ids, topic):
        logits = self.model(ids)
        loss = F.cross_entropy(logits, topic)
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        self.sched.step()
        self.step += 1
        self.train_metrics.update(logits.detach().softmax(1), topic)
        scores = self.train_metrics.compute()
        for cb in self.callbacks:
            cb.on_step(self, loss.item(), scores)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        for ids, topic in self.val_loader:
            self.val_metrics.update(self.model(ids).softmax(1), topic)
        self.model.train()
        scores = self.val_metrics.compute()
        self.val_metrics.reset()
        return scores

    def fit(self):
        for epoch in range(self.cfg.epochs):
            self.train_metrics.reset()
            for ids, topic in self.train_loader:
                self.train_step(ids, topic)
            scores = self.validate()
            for cb in self.callbacks:
                cb.on_epoch(self, scores)
            torch.save(self.model.state_dict(), FOLDER / "last.pt")


if __name__ == "__main__":
    Trainer(Config()).fit()
