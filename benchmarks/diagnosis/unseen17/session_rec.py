"""Next-item recommendation in shop sessions: a small causal transformer, sampled softmax-free (BCE with negatives)."""
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CACHE = Path(tempfile.gettempdir()) / "session_rec"


@dataclass
class Args:
    items: int = 8000
    sessions: int = 24_000
    max_len: int = 30
    dim: int = 48
    blocks: int = 2
    heads: int = 2
    dropout: float = 0.2
    batch_size: int = 128
    lr: float = 1e-3
    epochs: int = 40
    eval_negatives: int = 100
    patience: int = 15
    seed: int = 42


def build_log(args):
    path = CACHE / "clicks.parquet"
    if path.exists():
        return path
    CACHE.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(args.seed)
    category = np.sort(rng.integers(0, 200, args.items))
    start = np.searchsorted(category, np.arange(201))
    rows = []
    for session in range(args.sessions):
        c = int(rng.integers(200))
        for position in range(int(np.clip(rng.geometric(1 / 12) + 3, 4, 60))):
            if rng.random() < 0.12:
                c = (c + int(rng.integers(1, 4))) % 200
            span = max(1, start[c + 1] - start[c])
            item = min(start[c] + int(span * rng.random() ** 2), args.items - 1)
            rows.append((session, position, item + 1))
    pd.DataFrame(rows, columns=["session_id", "timestamp", "item_id"]).to_parquet(path)
    return path


class SessionDataset(Dataset):
    """Training sequences: all clicks but the last one of every session."""

    def __init__(self, sessions, args):
        self.sessions, self.args = sessions, args

    def __len__(self):
        return len(self.sessions)

    def __getitem__(self, index):
        return self.sessions[index][:-1]

    def collate(self, batch):
        length = self.args.max_len
        inputs = np.zeros((len(batch), length), np.int64)
        targets = np.zeros((len(batch), length), np.int64)
        for row, clicks in enumerate(batch):
            clicks = clicks[-(length + 1):]
            n = len(clicks) - 1
            inputs[row, length - n:] = clicks[:-1]
            targets[row, length - n:] = clicks[1:]
        negatives = np.random.randint(1, self.args.items + 1, targets.shape)
        return torch.from_numpy(inputs), torch.from_numpy(targets), torch.from_numpy(negatives)


class Block(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(args.dim), nn.LayerNorm(args.dim)
        self.heads, self.p = args.heads, args.dropout
        self.qkv = nn.Linear(args.dim, 3 * args.dim)
        self.out = nn.Linear(args.dim, args.dim)
        self.ffn = nn.Sequential(nn.Linear(args.dim, 2 * args.dim), nn.GELU(), nn.Linear(2 * args.dim, args.dim))
        self.dropout = nn.Dropout(args.dropout)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(attended.transpose(1, 2).reshape(b, t, d)))
        return x + self.dropout(self.ffn(self.norm2(x)))


class SessionTransformer(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.item = nn.Embedding(args.items + 1, args.dim, padding_idx=0)
        self.position = nn.Embedding(args.max_len, args.dim)
        self.blocks = nn.ModuleList(Block(args) for _ in range(args.blocks))
        self.norm, self.dropout = nn.LayerNorm(args.dim), nn.Dropout(args.dropout)
        nn.init.normal_(self.item.weight, std=0.02)

    def encode(self, inputs):
        x = self.dropout(self.item(inputs) + self.position.weight)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def forward(self, inputs, targets, negatives):
        states = self.encode(inputs)
        positive = (states * self.item(targets)).sum(-1)
        negative = (states * self.item(negatives)).sum(-1)
        mask = targets > 0
        return (F.softplus(-positive) + F.softplus(negative))[mask].mean()

    def predict(self, inputs, candidates):
        state = self.encode(inputs)[:, -1]
        return torch.einsum("bd,bcd->bc", state, self.item(candidates))


class Evaluator:
    """Leave-one-out protocol: the last click against randomly drawn items."""

    def __init__(self, sessions, args):
        rng = np.random.default_rng(args.seed + 1)
        self.cases = []
        for clicks in sessions:
            history = np.zeros(args.max_len, np.int64)
            past = clicks[:-1][-args.max_len:]
            history[args.max_len - len(past):] = past
            candidates = np.concatenate([clicks[-1:], rng.integers(1, args.items + 1, args.eval_negatives)])
            self.cases.append((history, candidates))

    @torch.no_grad()
    def __call__(self, model):
        model.eval()
        hits, ndcg = 0.0, 0.0
        for history, candidates in self.cases:
            scores = model.predict(torch.tensor(history)[None], torch.tensor(candidates)[None])[0]
            rank = int((scores[1:] > scores[0]).sum())
            if rank < 10:
                hits += 1
                ndcg += 1 / np.log2(rank + 2)
        return {"hr@10": hits / len(self.cases), "ndcg@10": ndcg / len(self.cases)}


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.waited = patience, -1.0, 0

    def update(self, value, model):
        if value > self.best:
            self.best, self.waited = value, 0
            torch.save(model.state_dict(), CACHE / "best.pt")
        else:
            self.waited += 1
        return self.waited >= self.patience


class Trainer:
    def __init__(self, args):
        self.args = args
        frame = pd.read_parquet(build_log(args)).sort_values(["session_id", "timestamp"])
        sessions = [g.to_numpy() for _, g in frame.groupby("session_id")["item_id"]]
        dataset = SessionDataset(sessions, args)
        self.loader = DataLoader(dataset, args.batch_size, shuffle=True, drop_last=True, collate_fn=dataset.collate)
        self.evaluate = Evaluator(sessions, args)
        self.model = SessionTransformer(args)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr, weight_decay=1e-5)
        self.stopper = EarlyStopping(args.patience)

    def run_epoch(self, epoch):
        self.model.train()
        running, started = 0.0, time.time()
        for step, batch in enumerate(self.loader, 1):
            loss = self.model(*batch)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.optimizer.step()
            running += loss.item()
            if step % 50 == 0:
                print(f"[{epoch}] {step}/{len(self.loader)} loss {running / step:.4f}", flush=True)
        return running / len(self.loader), time.time() - started

    def fit(self):
        for epoch in range(self.args.epochs):
            loss, seconds = self.run_epoch(epoch)
            metrics = self.evaluate(self.model)
            print(f"epoch {epoch} loss {loss:.4f} ({seconds:.1f}s) " + " ".join(f"{k} {v:.4f}" for k, v in metrics.items()), flush=True)
            if self.stopper.update(metrics["ndcg@10"], self.model):
                print("no more progress")
                break


if __name__ == "__main__":
    arguments = Args()
    torch.manual_seed(arguments.seed)
    np.random.seed(arguments.seed)
    Trainer(arguments).fit()
