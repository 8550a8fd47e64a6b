# %% [markdown]
# # Next item in the basket
# Sessions from a JSONL log (otto style). GRU over the items so far, BPR loss against sampled items,
# recall@20 among 500 candidates.

# %%
import json
import os
import random
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class CFG:
    dir = os.path.join(tempfile.gettempdir(), "grocery_baskets_aa")
    n_items = 150_000
    n_topics = 1500
    n_sessions = 60_000
    max_len = 20
    dim = 64
    n_neg = 50
    epochs = 8
    bs = 128
    lr = 1e-3
    dropout = 0.1
    clip = 5.0
    warmup = 100
    log_every = 20
    seed = 3407


def seed_everything(s):
    random.seed(s)
    np.random.seed(s)
    torch.manual_seed(s)


# %%
def make_log(file):
    """shoppers wander within a few topics, popular items come first in a topic"""
    rng = np.random.default_rng(1)
    per = CFG.n_items // CFG.n_topics
    with open(file, "w") as f:
        for s in range(CFG.n_sessions):
            n = int(np.clip(rng.geometric(0.1) + 2, 3, 40))
            topics = rng.integers(0, CFG.n_topics, 2)
            pick = topics[(rng.random(n) < 0.25).astype(int)]
            rank = np.minimum(rng.exponential(20, n).astype(int), per - 1)
            aids = (pick * per + rank).tolist()
            f.write(json.dumps({"session": s, "events": [{"aid": a, "ts": t} for t, a in enumerate(aids)]}) + "\n")


def load_sessions():
    file = os.path.join(CFG.dir, "sessions.jsonl")
    if not os.path.exists(file):
        os.makedirs(CFG.dir, exist_ok=True)
        make_log(file + ".tmp")
        os.rename(file + ".tmp", file)
    sessions = []
    with open(file) as f:
        for line in f:
            sessions.append([e["aid"] + 1 for e in json.loads(line)["events"]])   # 0 is padding
    return sessions


class BasketDataset(Dataset):
    def __init__(self, sessions):
        self.sessions = sessions

    def __len__(self):
        return len(self.sessions)

    def __getitem__(self, i):
        s = self.sessions[i][-(CFG.max_len + 1):]
        x, y = np.zeros(CFG.max_len, dtype=np.int64), np.zeros(CFG.max_len, dtype=np.int64)
        x[:len(s) - 1] = s[:-1]
        y[:len(s) - 1] = s[1:]
        return x, y


# %%
class GRU4Rec(nn.Module):
    def __init__(self):
        super().__init__()
        self.item_emb = nn.Embedding(CFG.n_items + 1, CFG.dim, padding_idx=0)
        nn.init.normal_(self.item_emb.weight, std=0.05)
        self.drop = nn.Dropout(CFG.dropout)
        self.gru = nn.GRU(CFG.dim, CFG.dim, batch_first=True)
        self.proj = nn.Linear(CFG.dim, CFG.dim)

    def forward(self, x):
        h, _ = self.gru(self.drop(self.item_emb(x)))
        return self.proj(h)

    def score(self, h, items):
        return torch.einsum("bld,bnd->bln", h, self.item_emb(items))


def bpr_loss(model, x, y):
    h = model(x)
    mask = (y > 0).float()
    pos = (h * model.item_emb(y)).sum(-1, keepdim=True)
    neg = model.score(h, torch.randint(1, CFG.n_items + 1, (x.size(0), CFG.n_neg)))
    loss = -F.logsigmoid(pos - neg).mean(-1)
    return (loss * mask).sum() / mask.sum()


@torch.no_grad()
def recall20(model, loader):
    model.eval()
    hits, n = 0, 0
    for x, y in loader:
        last = (y > 0).sum(1) - 1
        rows = torch.arange(len(x))
        h = model(x)[rows, last]
        cand = torch.randint(1, CFG.n_items + 1, (len(x), 500))
        cand[:, 0] = y[rows, last]
        s = torch.einsum("bd,bnd->bn", h, model.item_emb(cand))
        hits += (s.topk(20).indices == 0).sum().item()
        n += len(x)
    return hits / n


# %%
def main():
    seed_everything(CFG.seed)
    sessions = load_sessions()
    cut = int(len(sessions) * 0.9)
    train_dl = DataLoader(BasketDataset(sessions[:cut]), batch_size=CFG.bs, shuffle=True, drop_last=True)
    valid_dl = DataLoader(BasketDataset(sessions[cut:]), batch_size=256)
    print(len(sessions), "sessions,", len(train_dl), "steps per epoch")

    model = GRU4Rec()
    optimizer = torch.optim.Adam(model.parameters(), lr=CFG.lr)
    total = CFG.epochs * len(train_dl)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min(1.0, (s + 1) / CFG.warmup) * max(0.05, 1 - s / total))

    best = 0
    for epoch in range(CFG.epochs):
        model.train()
        t0, losses = time.time(), []
        for step, (x, y) in enumerate(train_dl, 1):
            loss = bpr_loss(model, x, y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.gru.parameters(), CFG.clip)
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
            if step % CFG.log_every == 0:
                print(f"epoch {epoch} step {step} loss {np.mean(losses[-CFG.log_every:]):.4f} "
                      f"{step / (time.time() - t0):.1f} it/s", flush=True)
        r = recall20(model, valid_dl)
        print(f"epoch {epoch} loss {np.mean(losses):.4f} recall@20 {r:.4f}", flush=True)
        if r > best:
            best = r
            torch.save(model.state_dict(), os.path.join(CFG.dir, "gru4rec.pt"))
    print("best recall@20", best)


if __name__ == "__main__":
    main()
