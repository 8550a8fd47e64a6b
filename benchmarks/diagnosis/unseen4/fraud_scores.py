"""Card-transaction scoring: gated MLP over numeric columns and category embeddings."""
import os
import tempfile
import time
from collections import deque

import numpy as np
import pandas as pd
import torch
from torch import nn

CATEGORIES = {"merchant": 400, "country": 60, "terminal": 900, "hour": 24}
NUMERIC = [f"f{i}" for i in range(24)]


def build_frame(n=60000, seed=4):
    rng = np.random.default_rng(seed)
    df = pd.DataFrame(rng.normal(size=(n, len(NUMERIC))).astype(np.float32), columns=NUMERIC)
    for name, size in CATEGORIES.items():
        df[name] = rng.integers(0, size, n)
    score = df["f0"] * df["f1"] + 0.8 * df["f2"] + 0.6 * np.sin(df["merchant"]) - 3.0
    df["fraud"] = (rng.random(n) < 1 / (1 + np.exp(-score))).astype(np.int64)
    return df


def load_tensors(folder):
    path = os.path.join(folder, "transactions.parquet")
    build_frame().to_parquet(path)
    df = pd.read_parquet(path)
    num = torch.from_numpy(df[NUMERIC].to_numpy(dtype=np.float32, copy=True))
    cat = torch.from_numpy(df[list(CATEGORIES)].to_numpy(dtype=np.int64, copy=True))
    target = torch.from_numpy(df["fraud"].to_numpy(dtype=np.float32, copy=True))
    return num, cat, target


class Scorer(nn.Module):
    def __init__(self, dim=16, hidden=384):
        super().__init__()
        self.emb = nn.ModuleList(nn.Embedding(n, dim) for n in CATEGORIES.values())
        width = len(NUMERIC) + dim * len(CATEGORIES)
        self.gate = nn.Linear(width, hidden)
        self.value = nn.Linear(width, hidden)
        self.mid = nn.Sequential(nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU())
        self.out = nn.Linear(hidden, 1)

    def forward(self, num, cat):
        parts = [num] + [e(cat[:, i]) for i, e in enumerate(self.emb)]
        x = torch.cat(parts, dim=1)
        h = torch.sigmoid(self.gate(x)) * self.value(x)
        return self.out(h + self.mid(h)).squeeze(1)


class Journal:
    """Keeps the recent predictions and writes quality figures to a CSV file."""

    def __init__(self, path, window=320):
        self.file = open(path, "w")
        self.file.write("step,loss,auc,precision_at_1pct\n")
        self.scores, self.targets = deque(maxlen=window), deque(maxlen=window)

    def remember(self, logits, target):
        self.scores.append(logits.detach().numpy())
        self.targets.append(target.numpy())

    def quality(self):
        s, t = np.concatenate(self.scores), np.concatenate(self.targets)
        order = np.argsort(s, kind="stable")
        ranks = np.empty(len(s))
        ranks[order] = np.arange(1, len(s) + 1)
        pos = t.sum()
        auc = (ranks[t > 0].sum() - pos * (pos + 1) / 2) / max(pos * (len(t) - pos), 1)
        top = order[-max(len(s) // 100, 1):]
        return auc, t[top].mean()

    def write(self, step, loss):
        auc, prec = self.quality()
        self.file.write(f"{step},{loss:.6f},{auc:.6f},{prec:.6f}\n")
        self.file.flush()
        os.fsync(self.file.fileno())
        return auc, prec


def train(epochs=100, batch=512, lr=1e-3, report=100):
    torch.manual_seed(0)
    folder = tempfile.mkdtemp(prefix="fraud_")
    num, cat, target = load_tensors(folder)
    print(f"{len(target)} transactions, {target.mean():.3%} fraud, files in {folder}")
    model = Scorer()
    opt = torch.optim.AdamW(model.parameters(), lr=lr)
    lossfn = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(4.0))
    journal = Journal(os.path.join(folder, "journal.csv"))
    step, begin = 0, time.time()
    for epoch in range(epochs):
        for idx in torch.randperm(len(target)).split(batch):
            logits = model(num[idx], cat[idx])
            loss = lossfn(logits, target[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            journal.remember(logits, target[idx])
            auc, prec = journal.write(step, loss.item())
            if step % report == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} auc {auc:.4f} "
                      f"p@1% {prec:.3f} {step / (time.time() - begin):.1f} it/s", flush=True)


if __name__ == "__main__":
    train()
