# collision cross section of peptides from sequence + charge
# (chapter 4; the CNN baseline lives in another script)
import copy
import math
import os
import pickle
import random
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

AA = "ACDEFGHIKLMNPQRSTVWY"
VOCAB = {a: i + 1 for i, a in enumerate(AA)}
VOCAB["[CLS]"] = len(VOCAB) + 1
MAX_LEN = 128

ROOT = os.path.join(tempfile.gettempdir(), "peptide_ccs")

MASS = {a: 57 + 6.5 * i for i, a in enumerate("GASPVTCILNDQKEMHFRYW")}
HYDRO = {a: v for a, v in zip(AA, np.linspace(-1.0, 1.0, 20))}


def simulate(n=16000, seed=11):
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n):
        L = int(np.clip(rng.lognormal(2.75, 0.38), 7, MAX_LEN - 2))
        seq = "".join(rng.choice(list(AA), L - 1)) + rng.choice(["K", "R"])
        z = 2 if L < 14 else int(rng.integers(2, 4))
        m = sum(MASS[a] for a in seq)
        # helical content makes the ion more compact
        h = np.mean([HYDRO[a] * HYDRO[b] for a, b in zip(seq, seq[3:])])
        ccs = 5.1 * m ** 0.66 * (1 + 0.04 * z) * (1 + 0.09 * h)
        rows.append((seq, z, float(ccs + rng.normal(0, 2.0))))
    return rows


def load_rows():
    os.makedirs(ROOT, exist_ok=True)
    fn = os.path.join(ROOT, "peptides.pkl")
    if not os.path.exists(fn):
        rows = simulate()
        with open(fn + ".part", "wb") as f:
            pickle.dump(rows, f)
        os.replace(fn + ".part", fn)
    with open(fn, "rb") as f:
        return pickle.load(f)


class PeptideSet(Dataset):
    def __init__(self, rows):
        self.seqs = [r[0] for r in rows]
        self.z = [r[1] for r in rows]
        y = np.array([r[2] for r in rows])
        self.mu, self.sd = y.mean(), y.std()
        self.y = ((y - self.mu) / self.sd).tolist()

    def encode(self, seq):
        ids = [VOCAB["[CLS]"]] + [VOCAB[a] for a in seq]
        return np.asarray(ids[:MAX_LEN], dtype=np.int64)

    def __len__(self):
        return len(self.seqs)

    def __getitem__(self, i):
        return self.encode(self.seqs[i]), self.z[i], self.y[i]


def collate(items):
    seqs, z, y = zip(*items)
    width = MAX_LEN
    ids = np.zeros((len(seqs), width), dtype=np.int64)
    for k, s in enumerate(seqs):
        ids[k, : len(s)] = s
    return torch.from_numpy(ids), torch.tensor(z), torch.tensor(y, dtype=torch.float32)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.ReLU(), nn.Linear(4 * d, d))

    def forward(self, x, attn_mask):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.ff(self.n2(x))


class CCSFormer(nn.Module):
    def __init__(self, d=80, layers=3, heads=4):
        super().__init__()
        self.tok = nn.Embedding(len(VOCAB) + 1, d, padding_idx=0)
        self.pos = nn.Embedding(MAX_LEN, d)
        self.charge = nn.Embedding(6, d)
        self.blocks = nn.ModuleList([Block(d, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, 1)

    def forward(self, ids, z):
        keep = ids.ne(0)
        p = torch.arange(ids.size(1), device=ids.device)
        x = self.tok(ids) * math.sqrt(self.tok.embedding_dim) + self.pos(p)[None]
        x = x + self.charge(z)[:, None]
        m = keep[:, None, None, :]
        for blk in self.blocks:
            x = blk(x, m)
        w = keep.unsqueeze(-1).float()
        x = (self.norm(x) * w).sum(1) / w.sum(1)
        return self.head(x).squeeze(-1)


def main():
    random.seed(4)
    np.random.seed(4)
    torch.manual_seed(4)

    rows = load_rows()
    random.shuffle(rows)
    train, held = PeptideSet(rows[500:]), PeptideSet(rows[:500])
    held.y = ((np.array([r[2] for r in rows[:500]]) - train.mu) / train.sd).tolist()
    dl = DataLoader(train, batch_size=32, shuffle=True, drop_last=True, collate_fn=collate)
    dl_held = DataLoader(held, batch_size=100, collate_fn=collate)

    net = CCSFormer()
    opt = torch.optim.AdamW(net.parameters(), lr=4e-4, weight_decay=0.01)
    best, best_state = float("inf"), None
    step = 0
    for epoch in range(200):
        net.train()
        t0 = time.time()
        for ids, z, y in dl:
            for g in opt.param_groups:
                g["lr"] = 4e-4 * min(1.0, (step + 1) / 200)
            loss = F.smooth_l1_loss(net(ids, z), y)
            opt.zero_grad()
            loss.backward()
            gn = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            if step % 50 == 0:
                print(f"ep {epoch} it {step} loss {loss.item():.4f} |g| {float(gn):.2f} {time.time() - t0:.1f}s", flush=True)
            step += 1
        net.eval()
        with torch.no_grad():
            err = [((net(a, b) - c).abs() * train.sd).mean().item() for a, b, c in dl_held]
        mae = float(np.mean(err))
        print(f"== epoch {epoch} held-out MAE {mae:.2f} A^2", flush=True)
        if mae < best:
            best, best_state = mae, copy.deepcopy(net.state_dict())
            torch.save(best_state, os.path.join(ROOT, "best.pt"))


if __name__ == "__main__":
    main()
