# -*- coding: utf-8 -*-
"""
Four-part chorales as a token stream, small causal transformer.

The conservatory wants: samples during the training, bits per note on the TV in the
hallway (csv, re-read every second), an averaged model for the public demo, and a
curriculum that begins with few accidentals.
"""
import copy
import csv
import math
import os
import random
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

OUT = os.path.join(tempfile.gettempdir(), "chorale_lm")
VOCAB = 64            # 0 bar line, 1 rest, 2.. pitches
BLOCK = 96
BATCH = 8
WIDTH, HEADS, LAYERS = 256, 4, 4
STEPS = 800
LR = 6e-4
SCALE = [0, 2, 4, 5, 7, 9, 11]


def compose(rnd, bars=16):
    """SATB, one chord per beat; returns tokens and the share of chromatic notes"""
    key = rnd.randrange(12)
    spice = rnd.random() * 0.3
    out, degree, chromatic, notes = [], 0, 0, 0
    for _ in range(bars):
        for _ in range(4):
            degree = (degree + rnd.choice([0, 3, 4, 4, 1, -2])) % 7
            for voice, octave in enumerate((4, 3, 3, 2)):
                d = degree + (0, 4, 2, 0)[voice]
                pitch = key + SCALE[d % 7] + 12 * (octave - 2)
                if rnd.random() < spice:
                    pitch += rnd.choice((-1, 1))
                    chromatic += 1
                notes += 1
                out.append(2 + max(0, min(VOCAB - 3, pitch)))
        out.append(0)
    return out, chromatic / notes


def corpus():
    path = os.path.join(OUT, "chorales.pt")
    if not os.path.exists(path):
        os.makedirs(OUT, exist_ok=True)
        rnd = random.Random(1685)
        pieces = sorted((compose(rnd) for _ in range(1500)), key=lambda p: p[1])
        torch.save([torch.tensor(p[0]) for p in pieces], path)
    return torch.load(path)      # from plain to chromatic


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.ff = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(self.n1(x)).view(B, T, 3, HEADS, C // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.ff(self.n2(x))


class Chorale(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, WIDTH)
        self.pos = nn.Parameter(0.02 * torch.randn(BLOCK, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.out = nn.Linear(WIDTH, VOCAB)

    def forward(self, idx):
        x = self.tok(idx) + self.pos[: idx.shape[1]]
        for b in self.blocks:
            x = b(x)
        return self.out(self.norm(x))


def get_batch(pieces, step, rnd):
    # curriculum: the plain half first, everything after 400 steps
    limit = int(len(pieces) * min(1.0, 0.5 + 0.5 * step / 400))
    rows = []
    for _ in range(BATCH):
        p = pieces[rnd.randrange(limit)]
        s = rnd.randrange(len(p) - BLOCK)
        row = p[s:s + BLOCK + 1].clone()
        shift = rnd.randint(-2, 2)          # transpose, but leave the bar lines
        row[row > 1] = (row[row > 1] + shift).clamp(2, VOCAB - 1)
        rows.append(row)
    rows = torch.stack(rows)
    return rows[:, :-1], rows[:, 1:]


def grad_norms(model):
    """one number per block for the hallway"""
    return [math.sqrt(sum(p.grad.pow(2).sum().item() for p in b.parameters())) for b in model.blocks]


def average(ema, model, decay):
    with torch.no_grad():
        source = dict(model.named_parameters())
        for name, p in ema.named_parameters():
            p.mul_(decay).add_(source[name], alpha=1 - decay)


@torch.no_grad()
def sample(model, n=40):
    idx = torch.zeros(1, 1, dtype=torch.long)
    for _ in range(n):
        p = F.softmax(model(idx[:, -BLOCK:])[0, -1] / 0.9, 0)
        idx = torch.cat([idx, torch.multinomial(p, 1)[None]], 1)
    return " ".join("|" if t == 0 else str(t - 2) for t in idx[0].tolist())


def main():
    torch.manual_seed(4)
    rnd = random.Random(4)
    pieces = corpus()
    model = Chorale()
    ema = copy.deepcopy(model)
    opt = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.05)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters, {len(pieces)} chorales")

    path = os.path.join(OUT, "hallway.csv")
    with open(path, "w") as f:
        csv.writer(f).writerow(["step", "bits", "top1", "barline", "lr"] + [f"g{i}" for i in range(LAYERS)])
    start = time.time()
    for step in range(STEPS):
        lr = LR * min(1, (step + 1) / 50) * (0.55 + 0.45 * math.cos(math.pi * step / STEPS))
        for g in opt.param_groups:
            g["lr"] = lr
        x, y = get_batch(pieces, step, rnd)
        logits = model(x)
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        norms = grad_norms(model)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        average(ema, model, 0.995)

        guess = logits.argmax(-1)
        top1 = (guess == y).float().mean().item()
        bars = ((guess == 0) & (y == 0)).sum().item() / max(1, (y == 0).sum().item())
        with open(path, "a", newline="") as f:
            csv.writer(f).writerow([step, loss.item() / math.log(2), top1, bars, lr] + norms)
        if step % 20 == 0:
            print(f"{step:5d} {time.time() - start:6.1f}s bits/note {loss.item() / math.log(2):.3f} top1 {top1:.3f}",
                  flush=True)
        if step % 200 == 199:
            print("   ", sample(ema))
    torch.save(ema.state_dict(), os.path.join(OUT, "ema.pt"))


if __name__ == "__main__":
    main()
