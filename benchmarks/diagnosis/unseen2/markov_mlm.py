"""Masked language model on short token sequences (synthetic, Markov chain), small encoder, tied output layer."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

VOCAB, PAD, MASK = 16000, 0, 1
MAX_LEN = 256
BS = 24


class Sequences(Dataset):
    def __init__(self, n=30000, seed=0):
        rng = np.random.default_rng(seed)
        lens = np.clip(rng.gamma(6.0, 40 / 6.0, n), 8, MAX_LEN).astype(int)
        jump = rng.integers(2, VOCAB, size=(VOCAB, 4))
        L = lens.max()
        toks = np.empty((n, L), dtype=np.int64)
        toks[:, 0] = rng.integers(2, VOCAB, n)
        for t in range(1, L):
            toks[:, t] = jump[toks[:, t - 1], rng.integers(0, 4, n)]
        self.seqs = [torch.from_numpy(toks[i, :l].copy()) for i, l in enumerate(lens)]
        self.lens = lens

    def __len__(self):
        return len(self.seqs)

    def __getitem__(self, i):
        return self.seqs[i]


class SimilarLength(Sampler):
    """shuffle, sort by length inside pools of 50 batches, shuffle the batches (once an epoch)"""

    def __init__(self, lens, bs, pool=50):
        self.lens, self.bs, self.pool = lens, bs, pool

    def __len__(self):
        return len(self.lens) // self.bs

    def __iter__(self):
        perm = np.random.permutation(len(self.lens))
        k = self.bs * self.pool
        batches = []
        for a in range(0, len(perm), k):
            part = perm[a:a + k]
            part = part[np.argsort(self.lens[part], kind="stable")]
            batches += [part[b:b + self.bs] for b in range(0, len(part) - self.bs + 1, self.bs)]
        for j in np.random.permutation(len(batches)):
            yield batches[j].tolist()


def collate(seqs):
    x = torch.full((len(seqs), MAX_LEN), PAD)
    for i, s in enumerate(seqs):
        x[i, :len(s)] = s
    pad = x == PAD
    chosen = (torch.rand(x.shape) < 0.15) & ~pad
    chosen[:, 0] = True            # at least one per sequence
    target = x[chosen]
    x = x.masked_fill(chosen, MASK)
    return x, pad, chosen, target


class MLM(nn.Module):
    def __init__(self, d=64, heads=4, layers=2):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d, padding_idx=PAD)
        nn.init.normal_(self.emb.weight, std=0.05)
        self.pos = nn.Embedding(MAX_LEN, d)
        enc = nn.TransformerEncoderLayer(d, heads, 4 * d, dropout=0.0, activation="gelu", batch_first=True,
                                         norm_first=True)
        self.enc = nn.TransformerEncoder(enc, layers, norm=nn.LayerNorm(d), enable_nested_tensor=False)
        self.bias = nn.Parameter(torch.zeros(VOCAB))

    def forward(self, x, pad, chosen):
        h = self.emb(x) + self.pos.weight[:x.shape[1]]
        h = self.enc(h, src_key_padding_mask=pad)
        return F.linear(h[chosen], self.emb.weight, self.bias)   # only where something was masked


torch.manual_seed(0)
np.random.seed(0)
ds = Sequences()
loader = DataLoader(ds, batch_sampler=SimilarLength(ds.lens, BS), collate_fn=collate)
model = MLM()
opt = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)

step = 0
for epoch in range(20):
    for x, pad, chosen, target in loader:
        loss = F.cross_entropy(model(x, pad, chosen), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"[{epoch}] {step:6d} mlm loss {loss.item():.4f}", flush=True)
        step += 1
