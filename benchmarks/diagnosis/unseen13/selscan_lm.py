"""
Mamba from the paper (Gu & Dao 2023), as literally as I can manage.
Character level LM on a synthetic "log file" language.

    h_t = exp(delta_t * A) h_{t-1} + delta_t * B_t * x_t        (eq. 2a, discretised)
    y_t = C_t h_t + D x_t                                        (eq. 2b)

No CUDA scan here, just the recurrence.
"""
import os
import math
import random
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

torch.manual_seed(1337)
random.seed(1337)

# ----------------------------------------------------------------- config
seq_len = 128
batch_size = 4
d_model = 64
n_layer = 2
d_state = 8
d_conv = 4
expand = 2
lr = 2e-3
max_iters = 2000
log_every = 20

# ------------------------------------------------------------------- data
root = os.path.join(tempfile.gettempdir(), "selscan_lm")
os.makedirs(root, exist_ok=True)
corpus = os.path.join(root, "corpus.txt")
if not os.path.exists(corpus):
    verbs = ["open", "close", "read", "write", "seek", "stat", "unlink"]
    files = ["/etc/%s" % w for w in ("passwd", "hosts", "fstab", "group")] + ["/tmp/x%02d" % i for i in range(30)]
    with open(corpus, "w") as f:
        t = 0
        for _ in range(20000):
            t += random.randint(1, 40)
            v = random.choice(verbs)
            p = random.choice(files)
            f.write(f"[{t:07d}] {v} {p} = {len(v) * len(p) % 17}\n")

text = open(corpus).read()
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
data = torch.tensor([stoi[c] for c in text], dtype=torch.long)
vocab_size = len(chars)
print(f"{len(text)} characters, vocab {vocab_size}")


class CharData(Dataset):
    def __init__(self, data, T):
        self.data, self.T = data, T

    def __len__(self):
        return (len(self.data) - 1) // self.T

    def __getitem__(self, i):
        s = i * self.T
        return self.data[s:s + self.T], self.data[s + 1:s + self.T + 1]


# ------------------------------------------------------------------ model
class RMSNorm(nn.Module):
    def __init__(self, d, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class MambaBlock(nn.Module):
    def __init__(self):
        super().__init__()
        d_inner = expand * d_model
        self.dt_rank = math.ceil(d_model / 16)
        self.in_proj = nn.Linear(d_model, 2 * d_inner, bias=False)
        self.conv1d = nn.Conv1d(d_inner, d_inner, d_conv, groups=d_inner, padding=d_conv - 1)
        self.x_proj = nn.Linear(d_inner, self.dt_rank + 2 * d_state, bias=False)
        self.dt_proj = nn.Linear(self.dt_rank, d_inner)
        A = torch.arange(1, d_state + 1).float().repeat(d_inner, 1)
        self.A_log = nn.Parameter(torch.log(A))
        self.D = nn.Parameter(torch.ones(d_inner))
        self.out_proj = nn.Linear(d_inner, d_model, bias=False)

    def forward(self, x):
        B, L, _ = x.shape
        x, z = self.in_proj(x).chunk(2, dim=-1)
        x = self.conv1d(x.transpose(1, 2))[:, :, :L].transpose(1, 2)
        x = F.silu(x)
        y = self.ssm(x)
        return self.out_proj(y * F.silu(z))

    def ssm(self, u):
        A = -torch.exp(self.A_log)                                   # (d_in, n)
        delta, B, C = self.x_proj(u).split([self.dt_rank, d_state, d_state], dim=-1)
        delta = F.softplus(self.dt_proj(delta))                      # (b, l, d_in)
        return self.selective_scan(u, delta, A, B, C, self.D)

    def selective_scan(self, u, delta, A, B, C, D):
        b, l, d = u.shape
        # discretise: ZOH for A, Euler for B, see sec. 2 of the paper
        dA = torch.exp(delta.unsqueeze(-1) * A)                      # (b, l, d_in, n)
        dBu = (delta * u).unsqueeze(-1) * B.unsqueeze(2)             # (b, l, d_in, n)
        h = torch.zeros(b, d, A.shape[1], device=u.device)
        hs = []
        for t in range(l):
            h = dA[:, t] * h + dBu[:, t]
            hs.append(h)
        y = torch.einsum("bldn,bln->bld", torch.stack(hs, dim=1), C)
        return y + u * D


class Mamba(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, d_model)
        self.blocks = nn.ModuleList(MambaBlock() for _ in range(n_layer))
        self.norms = nn.ModuleList(RMSNorm(d_model) for _ in range(n_layer))
        self.norm_f = RMSNorm(d_model)
        self.head = nn.Linear(d_model, vocab_size, bias=False)
        self.head.weight = self.embed.weight
        nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, idx, targets=None):
        x = self.embed(idx)
        for norm, block in zip(self.norms, self.blocks):
            x = x + block(norm(x))
        logits = self.head(self.norm_f(x))
        if targets is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


model = Mamba()
print(f"{sum(p.numel() for p in model.parameters()) / 1e3:.1f}k parameters")
opt = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.1)
loader = DataLoader(CharData(data, seq_len), batch_size=batch_size, shuffle=True, drop_last=True)


def cosine(it):
    warm = 50
    if it < warm:
        return lr * (it + 1) / warm
    return lr * (0.1 + 0.45 * (1 + math.cos(math.pi * (it - warm) / (max_iters - warm))))


it, t0 = 0, time.time()
while it < max_iters:
    for x, y in loader:
        for g in opt.param_groups:
            g["lr"] = cosine(it)
        loss = model(x, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if it % log_every == 0:
            print(f"iter {it:5d} | loss {loss.item():.4f} | bpc {loss.item() / math.log(2):.3f} | {time.time() - t0:.1f}s", flush=True)
        it += 1
        if it >= max_iters:
            break
