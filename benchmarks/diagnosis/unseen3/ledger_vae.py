#!/usr/bin/env python
"""Variational autoencoder for accounting records (mixed categorical/numeric),
used for anomaly scoring later on. Synthetic ledger."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--rows", type=int, default=60000)
    p.add_argument("--batch-size", type=int, default=128)
    p.add_argument("--latent", type=int, default=12)
    p.add_argument("--hidden", type=int, default=96)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--steps", type=int, default=40000)
    p.add_argument("--log-every", type=int, default=100)
    p.add_argument("--beta", type=float, default=0.3)
    p.add_argument("--seed", type=int, default=11)
    return p.parse_args()


CARDS = [40, 12, 25, 8, 60, 5]
N_NUM = 10


def make_ledger(n, seed):
    g = np.random.default_rng(seed)
    cluster = g.integers(0, 9, n)
    cats = []
    for c in CARDS:
        base = g.integers(0, c, 9)
        noise = g.integers(0, c, n)
        cats.append(np.where(g.random(n) < 0.8, base[cluster], noise))
    centers = g.normal(size=(9, N_NUM)) * 2
    num = centers[cluster] + g.normal(size=(n, N_NUM)) * 0.5
    num[:, 0] = np.log1p(np.exp(num[:, 0]))
    return (
        torch.as_tensor(np.stack(cats, 1), dtype=torch.long),
        torch.as_tensor((num - num.mean(0)) / num.std(0), dtype=torch.float32),
    )


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.a = nn.Linear(d, 2 * d)
        self.b = nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.b(F.silu(self.a(self.norm(x))))


class LedgerVAE(nn.Module):
    def __init__(self, hidden, latent, depth=3):
        super().__init__()
        self.emb = nn.ModuleList(nn.Embedding(c, 8) for c in CARDS)
        self.inp = nn.Linear(8 * len(CARDS) + N_NUM, hidden)
        self.enc = nn.Sequential(*[Block(hidden) for _ in range(depth)])
        self.stats = nn.Linear(hidden, 2 * latent)
        self.z_in = nn.Linear(latent, hidden)
        self.dec = nn.Sequential(*[Block(hidden) for _ in range(depth)])
        self.cat_heads = nn.ModuleList(nn.Linear(hidden, c) for c in CARDS)
        self.num_head = nn.Linear(hidden, N_NUM)

    def forward(self, cat, num):
        e = [emb(cat[:, i]) for i, emb in enumerate(self.emb)]
        h = self.enc(self.inp(torch.cat(e + [num], 1)))
        mu, logvar = self.stats(h).chunk(2, 1)
        logvar = logvar.clamp(-8, 8)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        h = self.dec(self.z_in(z))
        return [head(h) for head in self.cat_heads], self.num_head(h), mu, logvar


def elbo(out, cat, num, beta):
    logits, rec, mu, logvar = out
    ce = sum(F.cross_entropy(l, cat[:, i]) for i, l in enumerate(logits))
    mse = F.mse_loss(rec, num, reduction="none").sum(1).mean()
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    return ce + mse + beta * kl, ce, mse, kl


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    # had NaNs with --beta 4 last week
    torch.autograd.set_detect_anomaly(True)

    cat, num = make_ledger(args.rows, args.seed)
    model = LedgerVAE(args.hidden, args.latent)
    print(f"{args.rows} rows, {sum(p.numel() for p in model.parameters()):,} parameters")
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, args.lr, total_steps=args.steps)

    tic = time.perf_counter()
    perm, pos = torch.randperm(args.rows), 0
    for step in range(1, args.steps + 1):
        if pos + args.batch_size > args.rows:
            perm, pos = torch.randperm(args.rows), 0
        idx = perm[pos : pos + args.batch_size]
        pos += args.batch_size

        c, x = cat[idx], num[idx]
        loss, ce, mse, kl = elbo(model(c, x), c, x, args.beta)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()

        if step % args.log_every == 0:
            now = time.perf_counter()
            rate = args.log_every * args.batch_size / (now - tic)
            tic = now
            print(
                f"[{step:6d}] loss {loss.item():.3f} (ce {ce.item():.3f} mse {mse.item():.3f} "
                f"kl {kl.item():.3f})  {rate:.0f} rows/s",
                flush=True,
            )


if __name__ == "__main__":
    main()
